// Peak loops of the AVX-512 units, compiled with their flags. Call only where the ISA is present.
#pragma once

#include <cstdint>

namespace headroom::bench {

void RunInt8Peak(int64_t num_steps);
void RunBf16Peak(int64_t num_steps);
double Int8OpsPerStep();
double Bf16OpsPerStep();

}  // namespace headroom::bench
