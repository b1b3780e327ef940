// A request's tokens, and the log-probabilities behind them bit for bit, do not depend on who runs
// beside it, on chunk sizes, on the number of threads or, on the cpu backend, on the ISA.
// For every policy and 1, 3, 4 and 8 query heads to a KV head.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"

namespace headroom::engine {
namespace {

using testing::KvFixture;
using testing::KvFixtureOptions;
using testing::Outcome;

constexpr int32_t kVocab = 96;

// Weights of one dtype, converted from the tiny model's f32.
TensorView Convert(const TensorView& view, DType dtype, models::ModelWeights& weights) {
  const auto count = static_cast<size_t>(view.rows * view.cols);
  const auto* values = static_cast<const float*>(view.data);
  TensorView made = view;
  made.dtype = dtype;
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(made.num_bytes()));
  if (dtype == DType::kBF16) {
    for (size_t i = 0; i < count; ++i) {
      const uint16_t half = FloatToBf16(values[i]);
      std::memcpy(bytes->data() + 2 * i, &half, 2);
    }
  } else {
    // Q8_0: an f16 scale and 32 int8 of each block.
    for (size_t block = 0; block < count / 32; ++block) {
      float largest = 0.0f;
      for (size_t i = 0; i < 32; ++i) {
        largest = std::max(largest, std::abs(values[block * 32 + i]));
      }
      const float scale = largest / 127.0f;
      const uint16_t half = FloatToF16(scale);
      uint8_t* out = bytes->data() + block * 34;
      std::memcpy(out, &half, 2);
      for (size_t i = 0; i < 32; ++i) {
        const float ratio = scale == 0.0f ? 0.0f : values[block * 32 + i] / scale;
        out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::lround(ratio)));
      }
    }
  }
  made.data = bytes->data();
  weights.storage.push_back(std::move(bytes));
  return made;
}

models::LoadedModel MakeModel(DType dtype, int32_t group_size) {
  testing::TinyShape shape;
  shape.num_layers = 4;
  shape.hidden_size = 64;
  shape.intermediate_size = 96;
  shape.num_kv_heads = 2;
  shape.num_heads = group_size * shape.num_kv_heads;
  shape.head_dim = 16;
  shape.vocab_size = kVocab;
  models::LoadedModel model = testing::MakeTinyModel(shape);
  if (dtype == DType::kF32) {
    return model;
  }
  models::ModelWeights& weights = model.weights;
  for (models::LayerWeights& layer : weights.layers) {
    for (TensorView* view : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj,
                             &layer.gate_proj, &layer.up_proj, &layer.down_proj}) {
      *view = Convert(*view, dtype, weights);
    }
  }
  weights.embed_tokens = Convert(weights.embed_tokens, dtype, weights);
  weights.lm_head = weights.embed_tokens;
  return model;
}

const std::vector<testing::PolicyCase>& Policies() {
  static const std::vector<testing::PolicyCase> policies = testing::MakePolicyCases();
  return policies;
}

int32_t NumPolicies() { return static_cast<int32_t>(Policies().size()); }

Request MakeWithPolicy(RequestId id, int32_t policy, int32_t num_prompt, int32_t num_new,
                       int32_t vocab_size = kVocab) {
  Request request = testing::MakeRequest(id, num_prompt, num_new, id * 31 + 7, vocab_size);
  request.content_end = num_prompt - 1;
  request.kv = Policies()[static_cast<size_t>(policy % NumPolicies())].spec;
  request.sampling.num_logprobs = 3;
  if (id % 2 == 1) {
    request.sampling.temperature = 0.8f;
    request.sampling.seed = id;
  }
  return request;
}

// The requests whose results are compared: one of each policy and setting.
std::vector<Request> Subjects() {
  std::vector<Request> subjects;
  for (int32_t policy = 0; policy < NumPolicies(); ++policy) {
    subjects.push_back(MakeWithPolicy(static_cast<RequestId>(policy) + 1, policy, 83 + policy, 10));
  }
  return subjects;
}

// Everything that a reader of the request can see of the model's numbers.
struct Result {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of the tokens and of the three best of each
  std::vector<std::vector<std::vector<int32_t>>> kept;
  friend bool operator==(const Result&, const Result&) = default;
};

// Runs `requests` together and returns the results by id.
std::map<RequestId, Result> RunTogether(KvFixture& fixture, int32_t max_rows,
                                        const std::vector<Request>& requests) {
  EngineConfig config;
  config.limits.max_rows = max_rows;
  config.check_invariants = true;
  Engine engine(config, fixture.model(), fixture.cache(), fixture.policies(), nullptr);
  std::vector<Command> commands;
  for (Request request : requests) {
    request.trace_kv = true;
    commands.push_back(testing::SubmitOf(request));
  }
  std::map<RequestId, Result> results;
  do {
    for (EngineEvent& event : engine.Step(0, std::exchange(commands, {}))) {
      EXPECT_NE(event.event.kind, RequestEvent::Kind::kFailed) << StatusMessage(event.event.status);
      Result& result = results[event.id];
      for (const SampledToken& token : event.event.tokens) {
        result.tokens.push_back(token.token);
        result.logprobs.push_back(token.logprob);
        for (const TokenLogprob& best : token.top) {
          result.logprobs.push_back(best.logprob);
        }
      }
      if (event.event.kv_trace) {
        result.kept = event.event.kv_trace->kept;
      }
    }
  } while (engine.HasWork());
  return results;
}

// What ExpectInvariant runs.
struct ChunkSizes {
  std::vector<int32_t> alone;
  std::vector<int32_t> together;
};

const ChunkSizes kEveryChunkSize = {.alone = {1, 7, 64, 512}, .together = {64, 512}};

// The subjects alone with each chunk size, then each among 16 others.
void ExpectInvariant(KvFixture& fixture, const std::map<RequestId, Result>& expected,
                     const ChunkSizes& chunk_sizes, const std::string& where) {
  for (const Request& subject : Subjects()) {
    for (const int32_t max_rows : chunk_sizes.alone) {
      const auto alone = RunTogether(fixture, max_rows, {subject});
      EXPECT_TRUE(alone.at(subject.id) == expected.at(subject.id))
          << where << ", " << subject.kv.policy << " alone, max_rows " << max_rows;
    }
  }
  for (const int32_t max_rows : chunk_sizes.together) {
    std::vector<Request> crowd;
    for (int32_t i = 0; i < 16; ++i) {
      crowd.push_back(MakeWithPolicy(static_cast<RequestId>(100 + i), 3 * i, 5 + 9 * i, 4 + i));
    }
    const std::vector<Request> subjects = Subjects();
    crowd.insert(crowd.begin() + 8, subjects.begin(), subjects.end());
    const auto together = RunTogether(fixture, max_rows, crowd);
    for (const Request& subject : subjects) {
      EXPECT_TRUE(together.at(subject.id) == expected.at(subject.id))
          << where << ", " << subject.kv.policy << " among others, max_rows " << max_rows;
    }
  }
}

std::map<RequestId, Result> Baseline(KvFixture& fixture) {
  std::map<RequestId, Result> results;
  for (const Request& subject : Subjects()) {
    results.merge(RunTogether(fixture, 512, {subject}));
  }
  // Policies that all gave the same would prove nothing.
  EXPECT_NE(results.at(1).kept, results.at(2).kept);
  EXPECT_NE(results.at(2).kept, results.at(3).kept);
  return results;
}

TEST(InvarianceTest, OnTheReferenceBackend) {
  KvFixtureOptions options;
  options.tsp_layer = 1;
  std::map<RequestId, Result> expected;
  for (const int threads : {1, 2}) {
    KvFixture fixture(MakeModel(DType::kF32, 3), options, kernels::CreateRefBackend(threads));
    if (expected.empty()) {
      expected = Baseline(fixture);
    }
    ExpectInvariant(fixture, expected, kEveryChunkSize, fmt::format("ref, {} threads", threads));
  }
}

struct CpuCase {
  DType weights;
  kernels::KvDType kv;
  int32_t group_size;  // query heads to a KV head
  bool thorough;       // else few chunk sizes, and each ISA with one number of threads
};

class CpuInvarianceTest : public ::testing::TestWithParam<CpuCase> {
 protected:
  // Calls `check` with a fixture of every ISA of this machine and numbers of threads.
  void ForEachBackend(const std::function<void(KvFixture&, const std::string& where)>& check) {
    KvFixtureOptions options;
    options.tsp_layer = 1;
    options.dtype = GetParam().kv;
    int num_isas = 0;
    for (const char* isa : {"scalar", "avx2", "avx512"}) {
      if (!kernels::CpuSupportsIsa(isa)) {
        continue;
      }
      ++num_isas;
      for (const int threads : {1, 2}) {
        if (!GetParam().thorough && threads == 1 + num_isas % 2) {
          continue;
        }
        auto backend = kernels::CreateCpuBackend({.isa = isa, .num_threads = threads});
        ASSERT_TRUE(backend.ok()) << StatusMessage(backend.status());
        KvFixture fixture(MakeModel(GetParam().weights, GetParam().group_size), options,
                          std::move(backend).value());
        check(fixture, fmt::format("{}, {} threads", isa, threads));
      }
    }
    EXPECT_GE(num_isas, 1);
  }
};

TEST_P(CpuInvarianceTest, OverIsasThreadsChunksAndNeighbours) {
  const ChunkSizes chunk_sizes =
      GetParam().thorough ? kEveryChunkSize : ChunkSizes{.alone = {7}, .together = {64}};
  std::map<RequestId, Result> expected;
  ForEachBackend([&](KvFixture& fixture, const std::string& where) {
    if (expected.empty()) {
      expected = Baseline(fixture);
    }
    ExpectInvariant(fixture, expected, chunk_sizes, where);
  });
}

// Every policy told to keep everything gives what "full" gives, all in one batch.
TEST_P(CpuInvarianceTest, RatiosOfOneAreTheFullPathExactly) {
  const std::vector<testing::PolicyCase> policies = testing::MakeKeepAllCases();
  std::vector<Request> requests;
  for (const testing::PolicyCase& policy : policies) {
    requests.push_back(
        testing::MakeRequest(static_cast<RequestId>(requests.size()) + 1, 90, 10, 7, kVocab));
    requests.back().kv = policy.spec;
    requests.back().sampling.num_logprobs = 3;
  }
  ASSERT_EQ(policies.front().name, "full");
  std::map<RequestId, Result> full;
  ForEachBackend([&](KvFixture& fixture, const std::string& where) {
    if (full.empty()) {
      full = RunTogether(fixture, 512, {requests.front()});
      ASSERT_EQ(full.at(1).tokens.size(), 10u);
    }
    const auto together = RunTogether(fixture, 64, requests);
    for (const Request& request : requests) {
      EXPECT_TRUE(together.at(request.id) == full.at(1))
          << where << ", " << policies[static_cast<size_t>(request.id) - 1].name;
    }
  });
}

std::string CpuCaseName(const ::testing::TestParamInfo<CpuCase>& tested) {
  return fmt::format("{}_kv_{}_group_{}", GetDTypeInfo(tested.param.weights).name,
                     testing::KvDTypeName(tested.param.kv), tested.param.group_size);
}

// One for each core of the linear layers and dtype of the cache.
INSTANTIATE_TEST_SUITE_P(WeightsAndCache, CpuInvarianceTest,
                         ::testing::Values(CpuCase{DType::kF32, kernels::KvDType::kF32, 3, true},
                                           CpuCase{DType::kBF16, kernels::KvDType::kBF16, 3, true},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kBF16, 3, true},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kF32, 3, true},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kInt8, 3, true}),
                         CpuCaseName);

// The linear layers do not see group sizes: one core of theirs, the quickest, is enough.
INSTANTIATE_TEST_SUITE_P(GroupSizes, CpuInvarianceTest,
                         ::testing::Values(CpuCase{DType::kQ8_0, kernels::KvDType::kBF16, 1, false},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kBF16, 4, false},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kBF16, 8, false},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kInt8, 1, false},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kInt8, 4, false},
                                           CpuCase{DType::kQ8_0, kernels::KvDType::kInt8, 8,
                                                   false}),
                         CpuCaseName);

// The trained needle model has what random weights lack: heads that look far back.
TEST(InvarianceTest, OnTheNeedleModel) {
  KvFixtureOptions options;
  options.num_pages = 8192;
  std::map<RequestId, Result> expected;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    if (!kernels::CpuSupportsIsa(isa)) {
      continue;
    }
    auto model = models::LoadModel("builtin:needle-1hop");
    ASSERT_TRUE(model.ok()) << StatusMessage(model.status());
    options.tsp_layer = std::max(0, model->config.num_hidden_layers / 2 - 1);
    const int32_t vocab_size = model->config.vocab_size;
    auto backend = kernels::CreateCpuBackend({.isa = isa, .num_threads = 2});
    ASSERT_TRUE(backend.ok()) << StatusMessage(backend.status());
    KvFixture fixture(std::move(model).value(), options, std::move(backend).value());
    std::vector<Request> requests;
    for (int32_t policy = 0; policy < NumPolicies(); ++policy) {
      requests.push_back(MakeWithPolicy(static_cast<RequestId>(policy) + 1, policy,
                                        130 + 7 * policy, 8, vocab_size));
    }
    if (expected.empty()) {
      for (const Request& request : requests) {
        expected.merge(RunTogether(fixture, 512, {request}));
      }
    }
    const auto together = RunTogether(fixture, 31, requests);
    for (const Request& request : requests) {
      EXPECT_TRUE(together.at(request.id) == expected.at(request.id))
          << isa << ", " << request.kv.policy;
    }
  }
}

}  // namespace
}  // namespace headroom::engine
