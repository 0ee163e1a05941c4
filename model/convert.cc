#include "model/convert.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "model/convert_input.h"
#include "model/convert_match.h"
#include "model/convert_spec.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using Direction = ConvertRequest::Direction;

void ExpectOtherFile(const ConvertRequest& request, const ConvertInput& input) {
  std::vector<std::string> read = input.files();
  read.push_back(input.config_path());
  for (const std::string& file : read) {
    std::error_code ignored;
    if (fs::equivalent(file, request.out, ignored)) {
      FailUsage("convert: expected another file as OUT than those that are read, got {}", request.out);
    }
  }
}

// Rows 2n.. are an n x n matrix, row-major: transposes it. Its own inverse.
std::vector<char> TransposeKeep(const std::vector<char>& bytes, int64_t n) {
  const int64_t rows = n * n + 2 * n;
  const auto row = static_cast<int64_t>(bytes.size()) / rows;
  std::vector<char> result = bytes;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t k = 0; k < n; ++k) {
      std::memcpy(result.data() + (2 * n + j * n + k) * row, bytes.data() + (2 * n + k * n + j) * row,
                  static_cast<size_t>(row));
    }
  }
  return result;
}

std::string Done(const TensorRule& rule, const ModelSizes& sizes, Direction direction) {
  const bool from = direction == Direction::kFrom;
  switch (rule.change) {
    case Change::kNone:
      return "as it is";
    case Change::kReshape:
      return fmt::format("reshaped to [{}]",
                         fmt::join(ShapeOf(from ? rule.our_shape : rule.their_shape, sizes), ", "));
    case Change::kTransposeKeep:
      return from ? "keep's rows transposed to (to, from)"
                  : "keep's rows transposed to (source, destination)";
  }
  return "";
}

// Writes OUT: every tensor is read, changed and written before the next one.
class Writer {
 public:
  Writer(const ConvertRequest& request, const ConvertInput& input, const Matches& matches)
      : request_(request), input_(input), matches_(matches) {
    const bool from = request.direction == Direction::kFrom;
    for (const Match& match : matches.tensors) {
      Add(match.tensor, &match, from ? matches.OurName(match) : matches.TheirName(match),
          ShapeOf(from ? match.rule->our_shape : match.rule->their_shape, matches.sizes));
    }
    for (const size_t tensor : request.keep_others ? matches.others : std::vector<size_t>()) {
      Add(tensor, nullptr, input.tensors()[tensor].name, input.tensors()[tensor].shape);
    }
  }

  void Write(const std::map<std::string, std::string>& metadata, const ConvertProgress& progress) {
    int64_t done = 0;
    std::vector<char> bytes;
    WriteSafetensors(request_.out, views_, metadata, [&](const TensorView& view) {
      const Source& source = sources_.at(view.name);
      bytes = input_.Read(source.tensor);
      if (source.match != nullptr && source.match->rule->change == Change::kTransposeKeep) {
        bytes = TransposeKeep(bytes, matches_.sizes.slots);
      }
      done += view.bytes;
      progress(done, total_);
      return bytes.data();
    });
  }

 private:
  struct Source {
    size_t tensor;
    const Match* match;  // null: copied
  };
  void Add(size_t tensor, const Match* match, const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView& view = input_.tensors()[tensor];
    views_.push_back({name, view.dtype, shape, nullptr, view.bytes});
    sources_.emplace(name, Source{tensor, match});
    total_ += view.bytes;
  }

  const ConvertRequest& request_;
  const ConvertInput& input_;
  const Matches& matches_;
  std::vector<TensorView> views_;
  std::map<std::string, Source> sources_;
  int64_t total_ = 0;
};

ConvertResult Report(const ConvertRequest& request, const ConvertInput& input, const Layout& layout,
                     const Matches& matches, const ConvertedSpec& spec) {
  ConvertResult result{layout.name,
                       matches.prefix,
                       ToString(spec.residual),
                       matches.layers,
                       2 * matches.layers,
                       spec.block,
                       matches.sizes,
                       {},
                       {},
                       matches.notes,
                       spec.config};
  result.notes.insert(result.notes.end(), spec.notes.begin(), spec.notes.end());
  const bool from = request.direction == Direction::kFrom;
  for (const Match& match : matches.tensors) {
    const TensorView& tensor = input.tensors()[match.tensor];
    result.tensors.push_back({from ? tensor.name : matches.TheirName(match), matches.OurName(match),
                              tensor.dtype, ShapeOf(match.rule->their_shape, matches.sizes),
                              ShapeOf(match.rule->our_shape, matches.sizes),
                              Done(*match.rule, matches.sizes, request.direction)});
  }
  for (const size_t tensor : matches.others) result.others.push_back(input.tensors()[tensor].name);
  std::sort(result.others.begin(), result.others.end());
  return result;
}

// Where strata's file came from, so that the way back needs no options. Readers of released models expect the
// format "pt".
std::map<std::string, std::string> Metadata(const ConvertRequest& request, const ConvertResult& result) {
  std::map<std::string, std::string> metadata = {
      {"format", request.direction == Direction::kFrom ? "1" : "pt"},
      {"residual", result.residual},
      {"layout", result.layout},
      {"prefix", result.prefix}};
  if (result.block > 0) metadata["block"] = fmt::format("{}", result.block);
  return metadata;
}

// The prefix to write: as asked for, or the one that IN was read with, or the layout's usual one.
std::string PrefixToWrite(const ConvertRequest& request, const ConvertInput& input, const Layout& layout) {
  if (request.prefix) return *request.prefix;
  const auto from = input.metadata().find("layout"), prefix = input.metadata().find("prefix");
  const bool known = from != input.metadata().end() && prefix != input.metadata().end();
  return known && from->second == layout.name ? prefix->second : layout.prefixes[0];
}

}  // namespace

ConvertResult Convert(const ConvertRequest& request, const ConvertProgress& progress) {
  const bool from = request.direction == Direction::kFrom;
  const Layout& layout = LayoutOf(from ? "from" : "to", request.layout);
  if (request.in == request.out)
    FailUsage("convert: expected another file as OUT than IN, got {}", request.in);
  const ConvertInput input(request.in);
  ExpectOtherFile(request, input);
  Matches matches = from ? MatchTheirs(input, layout, request.prefix) : MatchOurs(input, layout);
  if (!from) matches.prefix = PrefixToWrite(request, input, layout);
  const ConvertedSpec spec = from ? SpecFromLayout(input, layout, matches, request.block)
                                  : SpecToLayout(input, layout, matches, request.block);
  const ConvertResult result = Report(request, input, layout, matches, spec);
  Writer(request, input, matches).Write(Metadata(request, result), progress);
  return result;
}

}  // namespace strata
