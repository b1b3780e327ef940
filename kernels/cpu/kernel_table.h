// One table of function pointers per ISA. Each is defined in units compiled with that ISA's flags
// and holds nothing that another unit could share.
#pragma once

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/linear_kernels.h"

namespace headroom::kernels {

struct KernelTable {
  const char* isa = nullptr;  // "avx512", "avx2", "scalar"
  LinearKernels linear;
  AttentionKernels attention;
};

// Each pair is defined in linear_<isa>.cc and attention_<isa>.cc.
LinearKernels LinearKernelsAvx512();
LinearKernels LinearKernelsAvx2();
LinearKernels LinearKernelsScalar();
AttentionKernels AttentionKernelsAvx512();
AttentionKernels AttentionKernelsAvx2();
AttentionKernels AttentionKernelsScalar();

}  // namespace headroom::kernels
