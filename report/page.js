'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  // Okabe and Ito's colours, which colour-blind readers tell apart; dashes and marks differ as well.
  const palettes = {
    light: ['#0072b2', '#d55e00', '#009e73', '#b8578f', '#a87400', '#3a8fc4'],
    dark: ['#56b4e9', '#e69f00', '#2bc79a', '#e39bc4', '#f0e442', '#9db8ff'],
  };
  const dashes = ['solid', 'dashed', 'dotted'];
  const marks = ['circle', 'rect', 'triangle', 'diamond'];
  const byId = (id) => document.getElementById(id);
  const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function add(parent, tag, text) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
  }

  // The baseline has the colour of the text; the others follow the palette.
  function colours(dark) {
    const palette = palettes[dark ? 'dark' : 'light'];
    let next = 0;
    return data.arms.map((arm) =>
        arm.residual === 'standard' ? cssColour('--faint') : palette[next++ % palette.length]);
  }

  function writeTexts() {
    byId('answer').textContent = data.answer;
    for (const name of data.header) add(byId('results').tHead.rows[0], 'th', name).scope = 'col';
    for (const arm of data.arms) {
      const row = add(byId('results').tBodies[0], 'tr');
      arm.cells.forEach((cell, i) => {
        const field = add(row, 'td');
        if (i === 0) add(field, 'span').className = 'key';
        field.append(cell);
      });
    }
    for (const note of data.notes) add(byId('notes'), 'li', note);
    byId('command').textContent = data.command;
    for (const [name, value] of Object.entries(data.options)) {
      const row = add(byId('options').tBodies[0], 'tr');
      add(row, 'td', name);
      add(row, 'td', Array.isArray(value) ? value.join(' ') : String(value));
    }
  }

  function writeSamples() {
    for (const arm of data.arms.filter((one) => one.sample !== '')) {
      const sample = byId('sample-template').content.cloneNode(true);
      sample.querySelector('h3').textContent = arm.residual;
      sample.querySelector('b').textContent = data.prompt;
      sample.querySelector('span').textContent = arm.sample;
      byId('samples').hidden = false;
      byId('samples').append(sample);
    }
  }

  const spread = data.arms.some((arm) => arm.seeds > 1) ? ' Bands reach from the lowest to the highest seed.' : '';
  const smoothing = data.smoothing > 1 ? `Each point is the mean of ${data.smoothing} steps.` : 'Every step.';
  const charts = [
    {key: 'difference', title: 'Difference to standard', x: 'step', y: 'nats per token',
      about: 'Validation loss minus that of standard with the same seed; below zero is better.' + spread},
    {key: 'validation', title: 'Validation loss', x: 'step', y: 'nats per token', about: 'The same held-out text.' + spread},
    {key: 'training', title: 'Training loss', x: 'step', y: 'nats per token', about: smoothing + spread},
    {key: 'state', title: 'Size of what each sublayer reads', x: 'sublayer', y: 'root mean square',
      about: 'At the last evaluation; attention and MLP take turns.' + spread},
    {key: 'update', title: 'Size of what each sublayer adds', x: 'sublayer', y: 'root mean square',
      about: 'At the last evaluation; attention and MLP take turns.' + spread},
  ].filter((chart) => data.arms.some((arm) => arm[chart.key] && arm[chart.key].x.length > 0));

  const number = (value) => Number(value.toPrecision(4)).toString();

  // The area between the lowest and the highest seed, drawn with the first point.
  function band(arm, curve, colour) {
    const points = curve.x.map((x, i) => [x, curve.low[i], curve.high[i]]);
    return {
      name: arm.residual, type: 'custom', silent: true, data: points, encode: {x: 0, y: [1, 2]}, clip: true, z: 1,
      itemStyle: {color: colour},
      renderItem(params, api) {
        if (params.dataIndexInside !== 0) return null;
        const upper = points.map((p) => api.coord([p[0], p[2]]));
        const lower = points.map((p) => api.coord([p[0], p[1]])).reverse();
        return {type: 'polygon', shape: {points: upper.concat(lower)}, style: {fill: colour, opacity: 0.18}};
      },
    };
  }

  function line(arm, curve, colour, index) {
    return {
      name: arm.residual, type: 'line', z: 2, color: colour, data: curve.x.map((x, i) => [x, curve.mean[i]]),
      symbol: marks[index % marks.length], symbolSize: 7, showSymbol: curve.x.length <= 20,
      lineStyle: {width: 2, type: dashes[index % dashes.length]},
    };
  }

  function series(chart, ink, palette) {
    const all = [];
    data.arms.forEach((arm, i) => {
      const curve = arm[chart.key];
      if (!curve || curve.x.length === 0) return;
      all.push(line(arm, curve, palette[i], i));
      if (arm.seeds > 1 && curve.x.length > 1) all.push(band(arm, curve, palette[i]));
    });
    const at = chart.key === 'difference' ? {yAxis: 0} : null;
    if (at) {
      all[0].markLine = {data: [at], silent: true, symbol: 'none', label: {show: false},
        lineStyle: {color: ink, type: 'solid', width: 1}};
    }
    return all;
  }

  function tooltip(chart, items) {
    const box = document.createElement('div');
    const shown = items.filter((item) => item.seriesType === 'line');
    if (shown.length === 0) return '';
    add(box, 'div', `${chart.x} ${number(shown[0].value[0])}`);
    for (const item of shown) {
      const row = add(box, 'div');
      const key = add(row, 'span');
      key.className = 'key';
      key.style.background = item.color;
      row.append(`${item.seriesName}: ${number(item.value[1])}`);
    }
    return box;
  }

  function options(chart, palette) {
    const ink = cssColour('--ink'), faint = cssColour('--faint'), rule = cssColour('--rule');
    const values = data.arms.flatMap((arm) => (arm[chart.key] ? arm[chart.key].mean : []));
    const wide = chart.x === 'sublayer' && Math.min(...values) > 0 && Math.max(...values) > 30 * Math.min(...values);
    const axis = {nameTextStyle: {color: faint}, axisLabel: {color: faint, hideOverlap: true},
      axisLine: {show: true, lineStyle: {color: rule}}, splitLine: {lineStyle: {color: rule}}};
    return {
      animation: false, backgroundColor: 'transparent', textStyle: {fontFamily: 'system-ui, sans-serif'},
      aria: {enabled: true},
      legend: {type: 'scroll', top: 4, left: 'center', itemWidth: 36, textStyle: {color: ink}, pageIconColor: ink,
        pageTextStyle: {color: ink}},
      grid: {left: 8, right: 20, top: 62, bottom: 30, containLabel: true},
      tooltip: {trigger: 'axis', confine: true, backgroundColor: cssColour('--panel'), borderColor: rule,
        textStyle: {color: ink}, formatter: (items) => tooltip(chart, items)},
      xAxis: {...axis, type: 'value', name: chart.x, nameLocation: 'middle', nameGap: 26, splitLine: {show: false},
        scale: chart.x === 'sublayer', min: chart.x === 'step' ? 0 : 'dataMin', max: 'dataMax',
        minInterval: 1},
      yAxis: {...axis, type: wide ? 'log' : 'value', name: chart.y, nameLocation: 'end',
        nameTextStyle: {color: faint, align: 'left'}, scale: chart.x === 'step',
        axisLabel: {...axis.axisLabel, formatter: number}},
      series: series(chart, ink, palette),
    };
  }

  const drawn = [];
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  function draw(dark) {
    const palette = colours(dark);
    document.querySelectorAll('#results .key').forEach((key, i) => { key.style.background = palette[i]; });
    for (const {chart, instance} of drawn) {
      instance.resize();
      instance.setOption(options(chart, palette), true);
    }
  }

  writeTexts();
  writeSamples();
  for (const chart of charts) {
    const figure = byId('chart-template').content.cloneNode(true);
    figure.querySelector('h3').textContent = chart.title;
    figure.querySelector('p').textContent = chart.about;
    const box = figure.querySelector('.chart');
    box.id = `chart-${chart.key}`;
    byId('charts').append(figure);
    drawn.push({chart, instance: echarts.init(box, null, {renderer: 'svg'})});
  }
  byId('charts').hidden = charts.length === 0;
  draw(scheme.matches);
  scheme.addEventListener('change', () => draw(scheme.matches));
  addEventListener('resize', () => drawn.forEach(({instance}) => instance.resize()));
  addEventListener('beforeprint', () => draw(false));
  addEventListener('afterprint', () => draw(scheme.matches));
  document.documentElement.dataset.ready = String(drawn.length);
})();
