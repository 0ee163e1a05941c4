#ifndef STRATA_TOOLS_COMMON_H_
#define STRATA_TOOLS_COMMON_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/data.h"
#include "model/trainer.h"

namespace strata {

// True if all paths are ready-made token shards (*.bin). Error (exit 2) if only some are.
bool AreShards(const std::vector<std::string>& paths);

// The tokenizer that text under `paths` needs: --tokenizer as given, or "ids" for shards.
std::unique_ptr<Tokenizer> TokenizerFor(const std::vector<std::string>& paths, const std::string& spec);

// Applies --threads (0: all cores); exit 2 when out of range.
void UseThreads(int64_t threads);

// Loads the model of a run's folder. Precision "run": f32 where it was trained so, else what suits this CPU.
LoadedModel OpenModel(const std::string& folder, const std::string& precision);

// One line on stdout; bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::ordered_json& json);

}  // namespace strata

#endif  // STRATA_TOOLS_COMMON_H_
