#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/trainer.h"

namespace strata {
namespace {

void ExpectRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) FailUsage("--{}: expected {} to {}, got {}", name, low, high, value);
}

void ExpectBelow(const char* name, double value, double high) {
  if (!(value >= 0 && value < high)) FailUsage("--{}: expected 0 to below {}, got {}", name, high, value);
}

}  // namespace

void TrainOptions::Resolve(const ModelConfig& config) {
  constexpr int64_t kMaxSteps = int64_t{1} << 40;
  ExpectRange("batch", batch, 1, 1 << 20);
  ExpectRange("accumulate", accumulate, 1, 1 << 20);
  ExpectRange("tokens", tokens, 0, int64_t{1} << 60);
  const int64_t per_step = CheckedProduct(CheckedProduct(batch, accumulate, "batch x accumulate"),
                                          config.context, "tokens per step");
  if (per_step > int64_t{1} << 60)
    FailUsage("--batch: expected at most 2^60 tokens per step, got {}", per_step);
  if (tokens > 0) steps = (tokens + per_step - 1) / per_step;
  tokens = 0;  // said by steps from here on
  ExpectRange("steps", steps, 1, kMaxSteps);
  CheckedProduct(steps, per_step, "tokens in all");
  ExpectRange("warmup", warmup, 0, kMaxSteps);
  // At least 1, so that a resumed run with other steps keeps the warm-up that was decided here.
  if (warmup == 0) warmup = std::clamp<int64_t>(steps / 10, 1, 100);
  ExpectRange("seed", seed, 0, INT64_MAX);
  ExpectRange("evaluate", evaluate, 1, kMaxSteps);
  ExpectRange("checkpoint", checkpoint, 1, kMaxSteps);
  ExpectRange("validation-windows", validation_windows, 1, 1 << 24);
  ExpectRange("threads", threads, 0, 4096);
  if (!(lr > 0 && std::isfinite(lr))) FailUsage("--lr: expected a number above 0, got {}", lr);
  if (!(final_lr >= 0 && final_lr <= 1)) FailUsage("--final-lr: expected 0 to 1, got {}", final_lr);
  if (!(clip >= 0 && std::isfinite(clip))) FailUsage("--clip: expected 0 or more, got {}", clip);
  if (!(weight_decay >= 0 && std::isfinite(weight_decay))) {
    FailUsage("--weight-decay: expected 0 or more, got {}", weight_decay);
  }
  ExpectBelow("beta1", beta1, 1);
  ExpectBelow("beta2", beta2, 1);
  if (schedule != "cosine" && schedule != "wsd" && schedule != "constant") {
    FailUsage("--schedule: expected cosine, wsd or constant, got {}", schedule);
  }
  ParsePrecision(precision);
  if (out.empty()) FailUsage("--out: expected a folder, got an empty text");
}

}  // namespace strata
