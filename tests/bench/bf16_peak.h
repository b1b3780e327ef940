// The machine's bf16 dot-product rate, to report other rates as a share of it.
#pragma once

namespace headroom::kernels {

// Best of many short runs of independent AVX-512 bf16 dot products, one thread.
double Bf16PeakGflops();

}  // namespace headroom::kernels
