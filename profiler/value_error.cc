#include "profiler/value_error.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/ops.h"

namespace headroom::profiler {

ValueErrors::ValueErrors(const RungSets& sets, std::span<const float> values, int32_t head_dim,
                         int32_t group_size)
    : sets_(sets),
      values_(values),
      head_dim_(static_cast<size_t>(head_dim)),
      errors_(static_cast<size_t>(group_size) * sets.num_rungs(), 0.0) {
  HEADROOM_CHECK(values.size() == static_cast<size_t>(sets.num_tokens()) * head_dim_);
}

void ValueErrors::FindAtoms(int32_t row) {
  atoms_.clear();
  atom_of_.resize(static_cast<size_t>(row) + 1);
  for (int32_t slot = 0; slot <= row; ++slot) {
    const uint64_t kept = sets_.RungsThatKeep(slot, row - slot);
    const auto found = std::find(atoms_.begin(), atoms_.end(), kept);
    atom_of_[static_cast<size_t>(slot)] = static_cast<uint32_t>(found - atoms_.begin());
    if (found == atoms_.end()) {
      atoms_.push_back(kept);
    }
  }
}

void ValueErrors::AddRow(int32_t row, const int64_t* probabilities, int64_t stride) {
  FindAtoms(row);
  for (size_t g = 0; g * sets_.num_rungs() < errors_.size(); ++g) {
    AddQueryHead(probabilities + static_cast<int64_t>(g) * stride, g);
  }
  ++num_rows_;
}

void ValueErrors::AddQueryHead(const int64_t* probabilities, size_t query_head) {
  outputs_.assign(atoms_.size() * head_dim_, 0.0f);
  atom_masses_.assign(atoms_.size(), 0.0);
  for (size_t slot = 0; slot < atom_of_.size(); ++slot) {
    const double p =
        static_cast<double>(probabilities[slot]) / static_cast<double>(kernels::kColumnUnit);
    atom_masses_[atom_of_[slot]] += p;
    const auto weight = static_cast<float>(p);
    const float* v = values_.data() + slot * head_dim_;
    float* output = outputs_.data() + atom_of_[slot] * head_dim_;
    for (size_t d = 0; d < head_dim_; ++d) {
      output[d] += weight * v[d];
    }
  }
  std::vector<double> whole(head_dim_, 0.0);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    whole[i % head_dim_] += double{outputs_[i]};
  }
  double length = 0.0;
  for (const double x : whole) {
    length += x * x;
  }
  std::vector<double> kept(head_dim_);
  for (size_t rung = 0; rung < sets_.num_rungs(); ++rung) {
    std::fill(kept.begin(), kept.end(), 0.0);
    double mass = 0.0;
    for (size_t atom = 0; atom < atoms_.size(); ++atom) {
      if ((atoms_[atom] >> rung & 1) == 0) {
        continue;
      }
      mass += atom_masses_[atom];
      for (size_t d = 0; d < head_dim_; ++d) {
        kept[d] += double{outputs_[atom * head_dim_ + d]};
      }
    }
    double moved = 0.0;
    for (size_t d = 0; d < head_dim_; ++d) {
      const double x = (mass > 0.0 ? kept[d] / mass : 0.0) - whole[d];
      moved += x * x;
    }
    errors_[query_head * sets_.num_rungs() + rung] +=
        length > 0.0 ? std::min(std::sqrt(moved / length), 1.0) : 0.0;
  }
}

void ValueErrors::Write(int32_t* error_ppm) const {
  const size_t num_rungs = sets_.num_rungs();
  std::fill_n(error_ppm, num_rungs, 0);
  for (size_t i = 0; i < errors_.size(); ++i) {
    const double mean = num_rows_ == 0 ? 0.0 : errors_[i] / num_rows_;
    error_ppm[i % num_rungs] =
        std::max(error_ppm[i % num_rungs], static_cast<int32_t>(std::lround(mean * 1e6)));
  }
}

}  // namespace headroom::profiler
