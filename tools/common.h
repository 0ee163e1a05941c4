#ifndef STRATA_TOOLS_COMMON_H_
#define STRATA_TOOLS_COMMON_H_

#include <memory>
#include <string>
#include <vector>

#include "model/data.h"

namespace strata {

// True if all paths are ready-made token shards (*.bin). Error (exit 2) if only some are.
bool AreShards(const std::vector<std::string>& paths);

// The tokenizer that text under `paths` needs: --tokenizer as given, or "ids" for shards.
std::unique_ptr<Tokenizer> TokenizerFor(const std::vector<std::string>& paths, const std::string& spec);

}  // namespace strata

#endif  // STRATA_TOOLS_COMMON_H_
