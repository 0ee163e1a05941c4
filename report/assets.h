#ifndef STRATA_REPORT_ASSETS_H_
#define STRATA_REPORT_ASSETS_H_

#include <string_view>

namespace strata {

// Files built into the program (assets.S).
std::string_view PageTemplate();  // page.html: text with {{name}} where something goes
std::string_view PageScript();    // page.js
std::string_view PageStyle();     // page.css
std::string_view ChartLibrary();  // echarts.min.js

}  // namespace strata

#endif  // STRATA_REPORT_ASSETS_H_
