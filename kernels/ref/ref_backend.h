// The reference backend: every op written from its definition, in double precision.
//
// It is the oracle of the tests and is never optimised beyond what lets it finish: weights are
// dequantised to f32, sums are double, softmax has two passes. Results do not depend on threads.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace headroom::kernels {

// `num_threads` >= 1.
std::unique_ptr<Backend> CreateRefBackend(int num_threads = 1);

}  // namespace headroom::kernels
