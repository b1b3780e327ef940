#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/simd_avx512.h"

namespace headroom::kernels {
namespace cpu_avx512 {

// Thirty-two registers: 24 sums, 4 columns, 1 broadcast.
static constexpr int kRowTile = 6;
static constexpr int kVecTile = 4;

#include "kernels/cpu/attention.inc"
#include "kernels/cpu/rope_store.inc"
#include "kernels/cpu/window_scores.inc"
// After attention.inc, whose tiles they use.
#include "kernels/cpu/column_scores.inc"
#include "kernels/cpu/class_masses.inc"

static constexpr AttentionKernels kAttentionKernels = {
    .isa = "avx512",
    .attend_bf16 = Attend<KvBf16>,
    .attend_f32 = Attend<KvF32>,
    .attend_int8 = Attend<KvInt8>,
    .merge_partials = MergePartials,
    .window_head_bf16 = ScoreWindowHead<KvBf16>,
    .window_head_f32 = ScoreWindowHead<KvF32>,
    .window_head_int8 = ScoreWindowHead<KvInt8>,
    .column_norms_bf16 = ColumnNorms<KvBf16>,
    .column_norms_f32 = ColumnNorms<KvF32>,
    .column_norms_int8 = ColumnNorms<KvInt8>,
    .column_sums_bf16 = AddColumns<KvBf16>,
    .column_sums_f32 = AddColumns<KvF32>,
    .column_sums_int8 = AddColumns<KvInt8>,
    .class_masses_bf16 = ClassMasses<KvBf16>,
    .class_masses_f32 = ClassMasses<KvF32>,
    .class_masses_int8 = ClassMasses<KvInt8>,
    .rope_row_bf16 = RopeStoreRow<KvBf16>,
    .rope_row_f32 = RopeStoreRow<KvF32>,
    .rope_row_int8 = RopeStoreRow<KvInt8>,
    .add_pooled = AddPooled,
};

}  // namespace cpu_avx512

bool PreferBf16Dot() { return !__builtin_cpu_is("intel"); }

AttentionKernels AttentionKernelsAvx512(bool use_bf16_dot) {
  AttentionKernels kernels = cpu_avx512::kAttentionKernels;
  if (use_bf16_dot) {
    kernels.attend_bf16 = cpu_avx512::Attend<cpu_avx512::KvBf16Dot>;
  }
  return kernels;
}

AttentionKernels AttentionKernelsAvx512() { return AttentionKernelsAvx512(PreferBf16Dot()); }

}  // namespace headroom::kernels
