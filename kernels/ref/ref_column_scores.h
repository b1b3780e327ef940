// Column sums and class masses of the reference backend.
#pragma once

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace headroom::kernels::ref {

void ColumnScores(const ColumnScoresParams& params, ThreadPool& pool);
void ClassMasses(const ClassMassesParams& params, ThreadPool& pool);

}  // namespace headroom::kernels::ref
