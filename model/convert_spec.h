#ifndef STRATA_MODEL_CONVERT_SPEC_H_
#define STRATA_MODEL_CONVERT_SPEC_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/convert_match.h"
#include "residual/mechanism.h"

namespace strata {

// The mechanism that converted tensors belong to.
struct ConvertedSpec {
  ResidualSpec residual;
  int64_t block = 0;  // sublayers of a block, for attnres; 0: not known, or there are none
  std::vector<std::string> notes;
  std::vector<std::pair<std::string, std::string>> config;  // what config.json of the layout's model needs
};

// From a layout: sizes from the tensors, the rest from config.json where it says something and strata's
// default differs. block: --block, or 0. Errors. Exit 2: --block for a mechanism without blocks, none at all
// for one with, or another than config.json's. Exit 1: config.json contradicts the tensors or names another
// model; a value out of range.
ConvertedSpec SpecFromLayout(const ConvertInput& input, const Layout& layout, const Matches& matches,
                             int64_t block);

// To a layout: from the metadata of strata's files (`residual`, or `config` of a checkpoint); else as far as
// the tensors show it. Error (exit 1) for options that the layout cannot express or the tensors contradict.
ConvertedSpec SpecToLayout(const ConvertInput& input, const Layout& layout, const Matches& matches,
                           int64_t block);

}  // namespace strata

#endif  // STRATA_MODEL_CONVERT_SPEC_H_
