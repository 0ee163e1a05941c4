#ifndef STRATA_MODEL_CONVERT_H_
#define STRATA_MODEL_CONVERT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/convert_layouts.h"

namespace strata {

// What to convert; docs/convert.md has the layouts.
struct ConvertRequest {
  enum class Direction { kFrom, kTo };  // from a layout to strata's names, or back
  std::string in, out, layout;
  Direction direction = Direction::kFrom;
  std::optional<std::string> prefix;  // of the layout's names; else found in IN, or the layout's usual one
  int64_t block = 0;                  // attnres: sublayers of a block; 0: as IN says
  bool keep_others = false;           // copy tensors that are not of the residual connection
};

struct ConvertedTensor {
  std::string theirs, ours, dtype;
  std::vector<int64_t> their_shape, our_shape;
  std::string done;  // in words
};

struct ConvertResult {
  std::string layout, prefix;
  std::string residual;  // for --residual
  int64_t layers = 0, sites = 0, block = 0;
  ModelSizes sizes;
  std::vector<ConvertedTensor> tensors;  // site by site, the head last
  std::vector<std::string> others;       // all names that are not of the residual connection, sorted
  std::vector<std::string> notes;        // what the user should know, one line each
  // To a layout: what config.json of the model needs, by key.
  std::vector<std::pair<std::string, std::string>> config;
};

// Bytes written so far, and in all.
using ConvertProgress = std::function<void(int64_t done, int64_t total)>;

// Writes the converted tensors to request.out, all or nothing. Every number keeps its bits and its dtype:
// converting there and back gives each tensor byte for byte. IN is read tensor by tensor.
// Errors. Exit 2, the request: an unknown layout, OUT is (one of) IN, a block that IN contradicts or that is
// given where there is none, no block for a layout that needs one. Exit 1, what IN holds: no tensors of the
// layout, several prefixes, a missing, left-over, doubled or misshapen tensor of the residual connection, a
// gap in the layers, numbers of config.json that contradict the tensors, options that the layout cannot
// express.
ConvertResult Convert(const ConvertRequest& request, const ConvertProgress& progress);

}  // namespace strata

#endif  // STRATA_MODEL_CONVERT_H_
