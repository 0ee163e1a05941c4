#include "model/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "study/arrays.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

struct Asked {
  ConvertRequest convert;
  bool json = false;
};

// False if --help was printed.
bool Parse(int argc, char** argv, Asked* asked) {
  std::vector<std::string> paths;
  std::string from, to, prefix;
  Flags flags(
      "convert",
      "Maps the residual connection's tensors of a released checkpoint to strata's names and layout, or "
      "back. IN is a safetensors file, or a folder with model.safetensors or its shards and index; OUT is "
      "a file. Every number keeps its bits. Layouts: " +
          fmt::format("{}", fmt::join(LayoutNames(), ", ")) + ".");
  flags.Positionals("IN OUT", 2, &paths, "what to read, and the file to write");
  flags.Add("from", &from, "layout of IN; OUT has strata's names", "Layout");
  flags.Add("to", &to, "layout of OUT; IN has strata's names", "Layout");
  flags.Add("prefix", &prefix,
            "what the layout's names begin with, such as model., or none; else found in IN, or the usual one",
            "Layout");
  flags.Add("block", &asked->convert.block,
            "attnres: sublayers of a block; 0: as config.json beside IN says (which counts layers)",
            "Layout");
  flags.Switch("keep-others", &asked->convert.keep_others,
               "copy tensors that are not of the residual connection, unchanged", "Output");
  flags.Switch("json", &asked->json, "print the result as JSON", "Output");
  if (!flags.Parse(argc, argv)) return false;
  if (paths.size() != 2) FailUsage("convert: expected IN and OUT, got {} paths", paths.size());
  if (from.empty() == to.empty()) {
    FailUsage("convert: expected one of --from and --to, got {}", from.empty() ? "neither" : "both");
  }
  if (asked->convert.block < 0 || asked->convert.block > 1'000'000) {
    FailUsage("--block: expected 1 to 1000000, got {}", asked->convert.block);
  }
  asked->convert.in = paths[0];
  asked->convert.out = paths[1];
  asked->convert.layout = from.empty() ? to : from;
  asked->convert.direction = from.empty() ? ConvertRequest::Direction::kTo : ConvertRequest::Direction::kFrom;
  if (prefix == "none")
    asked->convert.prefix = "";
  else if (prefix.ends_with('.'))
    asked->convert.prefix = prefix;
  else if (!prefix.empty())
    FailUsage("--prefix: expected none or a text that ends with a dot, got {}", prefix);
  return true;
}

// Says how far it is, once it takes longer than 2 s.
class LateProgress {
 public:
  void Update(int64_t done, int64_t total) {
    if (std::chrono::steady_clock::now() - begin_ < std::chrono::seconds(2)) return;
    constexpr int64_t kMiB = 1 << 20;
    if (!progress_) {
      progress_ = std::make_unique<Progress>("convert: MiB", total / kMiB, Progress::Mode::kAuto);
      progress_->Start(done / kMiB);
    }
    progress_->Update(done / kMiB, "");
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::unique_ptr<Progress> progress_;
};

// One line for each tensor, in columns.
std::string Table(const std::vector<std::array<std::string, 5>>& rows) {
  std::array<size_t, 5> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

// What was not converted, in full.
void PrintOthers(const ConvertRequest& request, const ConvertResult& result) {
  if (result.others.empty()) return;
  std::string text = fmt::format(
      "not of the residual connection, {}: {}\n",
      request.keep_others ? "copied unchanged" : "not copied (--keep-others copies them unchanged)",
      result.others.size());
  for (const std::string& name : result.others) text += "  " + name + "\n";
  PrintMessage(text);
}

ordered_json ToJson(const ConvertRequest& request, const ConvertResult& result) {
  const bool from = request.direction == ConvertRequest::Direction::kFrom;
  ordered_json json{
      {"in", request.in},        {"out", request.out},          {from ? "from" : "to", result.layout},
      {"prefix", result.prefix}, {"residual", result.residual}, {"layers", result.layers},
      {"sites", result.sites},   {"dim", result.sizes.dim}};
  if (result.sizes.slots > 0) json["slots"] = result.sizes.slots;
  if (result.sizes.rank > 0) json["rank"] = result.sizes.rank;
  if (result.block > 0) json["block"] = result.block;
  json["tensors"] = ordered_json::array();
  for (const ConvertedTensor& t : result.tensors) {
    json["tensors"].push_back({{"theirs", t.theirs},
                               {"ours", t.ours},
                               {"dtype", t.dtype},
                               {"their_shape", t.their_shape},
                               {"our_shape", t.our_shape},
                               {"done", t.done}});
  }
  json["others"] = result.others;
  json["others_copied"] = request.keep_others;
  json["notes"] = result.notes;
  if (!from) {
    json["config"] = ordered_json::object();
    for (const auto& [key, value] : result.config) json["config"][key] = ordered_json::parse(value);
  }
  return json;
}

void PrintText(const ConvertRequest& request, const ConvertResult& result) {
  const bool from = request.direction == ConvertRequest::Direction::kFrom;
  std::vector<std::array<std::string, 5>> rows = {{"theirs", "ours", "dtype", "shape", "done"}};
  for (const ConvertedTensor& t : result.tensors) {
    rows.push_back({t.theirs, t.ours, t.dtype, ShapeText(from ? t.their_shape : t.our_shape), t.done});
  }
  fmt::print("{}\n{}: tensors {}, layers {}, sites {}, dim {}\n", Table(rows), request.out,
             result.tensors.size(), result.layers, result.sites, result.sizes.dim);
  for (const std::string& note : result.notes) fmt::print("note: {}\n", note);
  if (!from) {
    std::string config;
    for (const auto& [key, value] : result.config) config += fmt::format("  {} {}\n", key, value);
    fmt::print("config.json of the model needs:\n{}", config);
  }
  fmt::print("--residual {}\n", result.residual);
}

}  // namespace

int RunConvert(int argc, char** argv) {
  Asked asked;
  if (!Parse(argc, argv, &asked)) return 0;
  ConvertResult result;
  {
    LateProgress late;
    result = Convert(asked.convert, [&](int64_t done, int64_t total) { late.Update(done, total); });
  }
  PrintOthers(asked.convert, result);
  asked.json ? PrintJson(ToJson(asked.convert, result)) : PrintText(asked.convert, result);
  return 0;
}

}  // namespace strata
