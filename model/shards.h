#ifndef STRATA_MODEL_SHARDS_H_
#define STRATA_MODEL_SHARDS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// Appends the tokens of a .bin shard to `tokens`. Two layouts, both little-endian:
//   a header of 256 int32 (magic 20240520, version 1, count, zeros), then count uint16 tokens
//   uint16 tokens alone
// Error: another magic or version, a size that does not fit, a token that is not below vocab (0: any).
void ReadShard(const std::string& path, int64_t vocab, std::vector<int32_t>* tokens);

}  // namespace strata

#endif  // STRATA_MODEL_SHARDS_H_
