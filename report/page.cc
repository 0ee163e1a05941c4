#include "report/page.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "report/assets.h"
#include "report/curves.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kTrainingPoints = 200;

ordered_json ToJson(const Band& band) {
  return {{"x", band.x}, {"mean", band.mean}, {"low", band.low}, {"high", band.high}};
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// JSON that may stand inside a <script> element: no `<` is left that could end it.
std::string EscapeJson(const ordered_json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

using Part = std::pair<std::string_view, std::string_view>;

// Replaces each {{name}} of the template once; what was put in is not looked at again.
std::string FillTemplate(std::string_view text, const std::array<Part, 5>& parts) {
  std::string filled;
  for (;;) {
    const size_t open = text.find("{{");
    filled += text.substr(0, open);
    if (open == std::string_view::npos) return filled;
    const size_t close = text.find("}}", open);
    if (close == std::string_view::npos) Fail("page template: expected }}}} after {{{{, got none");
    const std::string_view name = text.substr(open + 2, close - open - 2);
    bool found = false;
    for (const auto& [key, value] : parts) {
      if (key == name) filled += value, found = true;
    }
    if (!found) Fail("page template: expected a known name, got {}", name);
    text.remove_prefix(close + 2);
  }
}

}  // namespace

ordered_json PageData(const Page& page) {
  ordered_json data = {{"title", page.title},    {"answer", page.answer}, {"notes", page.notes},
                       {"header", page.header},  {"prompt", page.prompt}, {"command", page.command},
                       {"options", page.options}};
  std::vector<Records> all;
  for (const PageArm& arm : page.arms) all.insert(all.end(), arm.runs.begin(), arm.runs.end());
  const int64_t width = SmoothingWidth(all, kTrainingPoints);
  data["smoothing"] = width;
  data["arms"] = ordered_json::array();
  const PageArm* baseline = nullptr;
  for (const PageArm& arm : page.arms) {
    if (arm.residual == "standard") baseline = &arm;
  }
  for (const PageArm& arm : page.arms) {
    data["arms"].push_back({{"residual", arm.residual},
                            {"cells", arm.cells},
                            {"seeds", arm.runs.size()},
                            {"validation", ToJson(ValidationBand(arm.runs))},
                            {"training", ToJson(TrainingBand(arm.runs, width))},
                            {"state", ToJson(StateBand(arm.runs))},
                            {"update", ToJson(UpdateBand(arm.runs))},
                            {"sample", arm.sample}});
    if (baseline != nullptr && baseline != &arm) {
      data["arms"].back()["difference"] = ToJson(DifferenceBand(arm.runs, baseline->runs));
    }
  }
  return data;
}

std::string RenderPage(const Page& page) {
  const std::string title = EscapeHtml(page.title), data = EscapeJson(PageData(page));
  return FillTemplate(PageTemplate(), {{{"title", title},
                                        {"style", PageStyle()},
                                        {"data", data},
                                        {"charts", ChartLibrary()},
                                        {"script", PageScript()}}});
}

}  // namespace strata
