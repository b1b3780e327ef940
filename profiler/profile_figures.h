// The drawings of the profile's page, each with its heading and caption where it has one.
#pragma once

#include <string>

#include "engine/kv/head_map.h"

namespace headroom::profiler {

// Grids of heads.
std::string TypeGrid(const engine::HeadMap& map);
std::string ProbeGrid(const engine::HeadMap& map);
std::string BudgetGrid(const engine::HeadMap& map);

// Overlap of top tokens, probe score and price by layer; what validated cuts cost, empty when there
// are none.
std::string TspCurves(const engine::HeadMap& map);
std::string TspLoss(const engine::HeadMap& map);

// Kept mass over windows and over column shares, of a few heads.
std::string RecoveryCurves(const engine::HeadMap& map);

// Answers against loss for every swept split; empty when nothing was swept.
std::string Front(const engine::HeadMap& map);

// "adaptive rho 0.2, dense 0.5".
std::string ValidationLabel(const engine::ValidationRow& row);

// Parts per million as percent, and as a signed decimal; "-" for shares below 0.
std::string PercentText(int64_t ppm, int digits = 1);
std::string ShareText(int64_t ppm);
std::string SignedText(int64_t ppm);

}  // namespace headroom::profiler
