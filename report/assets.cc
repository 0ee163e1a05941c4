#include "report/assets.h"

#include <cstddef>

extern "C" {
extern const char strata_page_html[], strata_page_html_end[];
extern const char strata_page_js[], strata_page_js_end[];
extern const char strata_page_css[], strata_page_css_end[];
extern const char strata_echarts_js[], strata_echarts_js_end[];
}

namespace strata {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view PageTemplate() { return Between(strata_page_html, strata_page_html_end); }
std::string_view PageScript() { return Between(strata_page_js, strata_page_js_end); }
std::string_view PageStyle() { return Between(strata_page_css, strata_page_css_end); }
std::string_view ChartLibrary() { return Between(strata_echarts_js, strata_echarts_js_end); }

}  // namespace strata
