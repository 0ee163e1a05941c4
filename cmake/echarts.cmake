# Builds the report's template and the chart library into strata_report. The library is an npm package:
# `npm ci` (which ./setup runs) puts it where package-lock.json says.
enable_language(ASM)

set(STRATA_ECHARTS ${CMAKE_SOURCE_DIR}/node_modules/echarts/dist/echarts.min.js CACHE FILEPATH
  "Apache ECharts 6, echarts.min.js")
if(NOT EXISTS ${STRATA_ECHARTS})
  message(FATAL_ERROR "${STRATA_ECHARTS}: expected the report's chart library, got none. Run ./setup, or "
    "npm ci, or name another copy with -DSTRATA_ECHARTS=PATH.")
endif()

set(assets ${CMAKE_SOURCE_DIR}/report/page.html ${CMAKE_SOURCE_DIR}/report/page.js
  ${CMAKE_SOURCE_DIR}/report/page.css ${STRATA_ECHARTS})
target_sources(strata_report PRIVATE ${CMAKE_SOURCE_DIR}/report/assets.S)
set_source_files_properties(${CMAKE_SOURCE_DIR}/report/assets.S PROPERTIES OBJECT_DEPENDS "${assets}"
  COMPILE_DEFINITIONS "STRATA_PAGE_HTML=\"${CMAKE_SOURCE_DIR}/report/page.html\";\
STRATA_PAGE_JS=\"${CMAKE_SOURCE_DIR}/report/page.js\";\
STRATA_PAGE_CSS=\"${CMAKE_SOURCE_DIR}/report/page.css\";STRATA_ECHARTS_JS=\"${STRATA_ECHARTS}\"")
