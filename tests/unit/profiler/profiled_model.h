// A model on a backend with what statistics and probes read prompts through.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "models/loaded_model.h"
#include "profiler/prompt_reader.h"
#include "tests/support/kv_fixture.h"

namespace headroom::profiler {

class ProfiledModel {
 public:
  ProfiledModel(models::LoadedModel model, std::unique_ptr<kernels::Backend> backend,
                int32_t max_rows, engine::TokenClasses classes = nullptr)
      : fixture_(std::move(model), Options(max_rows), std::move(backend)),
        max_rows_(max_rows),
        classes_(std::move(classes)) {}
  // A model by its path on the cpu backend.
  ProfiledModel(const std::string& path, int num_threads, int32_t max_rows)
      : ProfiledModel(Load(path), *kernels::CreateCpuBackend({.num_threads = num_threads}),
                      max_rows) {}

  std::unique_ptr<PromptReader> MakeReader(int32_t max_tokens,
                                           kernels::KvDType dtype = kernels::KvDType::kF32) {
    const EvalModel model = {.model = fixture_.model(),
                             .backend = fixture_.backend(),
                             .policies = fixture_.policies(),
                             .clock = clock_,
                             .shape = fixture_.shape(),
                             .attention_scale = fixture_.model().attention_scale(),
                             .max_rows = max_rows_,
                             .token_classes = classes_};
    auto reader = PromptReader::Create(model, dtype, max_tokens);
    EXPECT_TRUE(reader.ok()) << StatusMessage(reader.status());
    return std::move(reader).value();
  }
  const models::LoadedModel& loaded() const { return fixture_.loaded(); }

  static models::LoadedModel Load(const std::string& path) {
    auto model = models::LoadModel(path);
    EXPECT_TRUE(model.ok()) << StatusMessage(model.status());
    return std::move(model).value();
  }

 private:
  static headroom::testing::KvFixtureOptions Options(int32_t max_rows) {
    headroom::testing::KvFixtureOptions options;
    options.max_rows = max_rows;
    return options;
  }

  headroom::testing::TickingClock clock_;
  headroom::testing::KvFixture fixture_;
  const int32_t max_rows_;
  const engine::TokenClasses classes_;
};

}  // namespace headroom::profiler
