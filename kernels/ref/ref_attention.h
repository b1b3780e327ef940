// Attention-side ops of the reference backend.
#pragma once

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace headroom::kernels::ref {

void RopeStore(const RopeStoreParams& params);
void Attention(const AttentionParams& params, ThreadPool& pool);
void WindowScores(const WindowScoresParams& params, ThreadPool& pool);
void SelectTopK(const SelectTopKParams& params);

}  // namespace headroom::kernels::ref
