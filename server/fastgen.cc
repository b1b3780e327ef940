#include "server/fastgen.h"

#include <cmath>
#include <utility>

#include "base/clock.h"
#include "profiler/atomic_file.h"
#include "server/profiling.h"

namespace headroom::server {
namespace {

class SilentObserver final : public profiler::EvalObserver {
 public:
  void Progress(int64_t, int64_t, const std::string&) override {}
  void Finished(const std::string&, int64_t, int64_t) override {}
  bool Cancelled() const override { return false; }
};

StatusOr<int64_t> ToPpm(double ratio, const char* name) {
  const double ppm = ratio * 1e6;
  if (!(ppm >= 1.0 && ppm <= 1e6)) {
    return InvalidArgument("{}: got {}, wanted a ratio in (0, 1]", name, ratio);
  }
  return static_cast<int64_t>(std::llround(ppm));
}

}  // namespace

Status FastGenConfig::Save(const std::string& path) const {
  return profiler::WriteFileAtomically(path, Text());
}

StatusOr<FastGenConfig> ProfileModel(const std::string& model_name,
                                     const std::vector<std::string>& sample_prompts,
                                     const FastGenOptions& options) {
  ProfileRequest request;
  request.runtime.model = model_name;
  request.runtime.threads = options.threads;
  request.texts = sample_prompts;
  request.validate = options.validate;
  profiler::ProfileOptions& settings = request.options;
  settings.classifier.seed = options.seed;
  HEADROOM_ASSIGN_OR_RETURN(settings.budget_ratio_ppm, ToPpm(options.budget_ratio, "budget_ratio"));
  HEADROOM_ASSIGN_OR_RETURN(settings.classifier.pass.theta_ppm,
                            ToPpm(options.target_recovery, "target_recovery"));
  SteadyClock clock;
  SilentObserver silent;
  HEADROOM_ASSIGN_OR_RETURN(
      ProfileOutcome outcome,
      Profile(request, clock, options.observer != nullptr ? *options.observer : silent));
  return FastGenConfig(std::move(outcome.map));
}

}  // namespace headroom::server
