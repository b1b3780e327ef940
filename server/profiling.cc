#include "server/profiling.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/thread_pool.h"
#include "engine/kv/head_map_binding.h"
#include "profiler/dense_order.h"
#include "profiler/evaluation/documents.h"
#include "profiler/profile_prompts.h"
#include "profiler/tsp_choice.h"
#include "profiler/validation.h"
#include "profiler/validation_material.h"

namespace headroom::server {
namespace {

// Of the prompts, kept apart for validation: one in eight, at most sixteen.
constexpr int64_t kHeldOutShare = 8;
constexpr int64_t kMostHeldOut = 16;
// Prompts that are made for the order of dense heads: enough where the full cache answers half.
constexpr int32_t kOrderNeedles = 80;

StatusOr<profiler::ProfileInput> ReadInputs(const ProfileRequest& request, const Runtime& runtime,
                                            const profiler::TextFormat* format) {
  const profiler::PromptLimits limits = {
      .format = format,
      .vocab_size = runtime.config().vocab_size,
      .max_tokens = std::min(request.max_tokens, runtime.max_context())};
  profiler::ProfileInput input;
  for (const PromptFile& file : request.files) {
    const Status read = file.name.ends_with(".txt")
                            ? profiler::ReadPromptText(file.text, file.name, limits, &input)
                            : profiler::ReadPromptLines(file.text, file.name, limits, &input);
    HEADROOM_RETURN_IF_ERROR(read);
  }
  if (!request.texts.empty() && format == nullptr) {
    return InvalidArgument("{} has no tokenizer, it takes prompts of token ids only",
                           runtime.model_name());
  }
  for (size_t i = 0; i < request.texts.size(); ++i) {
    profiler::AddTextPrompt(request.texts[i], fmt::format("prompt {}", i), limits, &input);
  }
  if (input.prompts.empty()) {
    return InvalidArgument("--prompts: got no prompt with content ({} blank), wanted at least one",
                           input.num_blank);
  }
  profiler::SortAndLimit(request.limit, &input);
  return input;
}

profiler::EvalModel ModelOf(Runtime& runtime, const Clock& clock, int32_t max_rows) {
  return {.model = runtime.transformer(),
          .backend = runtime.backend(),
          .policies = runtime.policies(),
          .clock = clock,
          .shape = runtime.shape(),
          .attention_scale = runtime.transformer().attention_scale(),
          .max_rows = max_rows,
          .token_classes = runtime.tokenizer() == nullptr
                               ? nullptr
                               : engine::ClassifyVocabulary(*runtime.tokenizer())};
}

// Hashes of the model's files, which the runtime has let go of.
StatusOr<profiler::ProfileIdentity> Identify(const RuntimeOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const models::LoadedModel loaded, models::LoadModel(options.model));
  engine::ModelIdentity identity =
      engine::IdentifyModel(loaded, options.threads > 0 ? options.threads : AvailableCpus());
  return profiler::ProfileIdentity{.model = std::move(identity.model),
                                   .tokenizer = std::move(identity.tokenizer)};
}

struct Validation {
  const profiler::EvalModel& model;
  kernels::KvDType kv_dtype;
  const profiler::TextFormat* text;
  std::vector<int32_t> eos_token_ids;
  int32_t max_context;
  uint64_t seed;
  int64_t num_given;  // prompts, held-out ones too, before they were cut to lengths
  profiler::TspOptions tsp;
  profiler::EvalObserver& observer;
};

// The order of dense heads, from what the profile read; then everything that is measured on what it
// did not read.
Status Validate(const Validation& validation, const profiler::ProfileInput& input,
                const profiler::HeldOut& held_out, profiler::ProfileResult* result) {
  profiler::MaterialOptions making;
  making.max_context = std::min(making.max_context, validation.max_context);
  making.seed = validation.seed;
  making.warnings = &result->notes.warnings;
  profiler::ValidationMaterial material =
      profiler::MakeValidationMaterial(held_out, validation.text, making);
  if (material.documents.empty() && material.tasks.empty()) {
    result->notes.warnings.push_back("not validated: the prompts that are held out are too short");
    return OkStatus();
  }
  material.needles.eos_token_ids = validation.eos_token_ids;
  if (!material.tasks.empty()) {
    making.num_needles = kOrderNeedles;
    HEADROOM_ASSIGN_OR_RETURN(
        const std::vector<int32_t> ranks,
        profiler::OrderDenseHeads(
            validation.model, profiler::MakeOrderNeedles(input, validation.text, making),
            {.kv_dtype = validation.kv_dtype, .eos_token_ids = validation.eos_token_ids},
            result->map, validation.observer));
    for (size_t i = 0; i < ranks.size(); ++i) {
      result->map.heads[i].fill_rank = ranks[i];
    }
  }
  profiler::ValidationOptions options;
  options.kv_dtype = validation.kv_dtype;
  options.num_prompts = validation.num_given;
  HEADROOM_RETURN_IF_ERROR(profiler::ValidateMap(validation.model, material, options,
                                                 validation.observer, &result->map));
  // Shares of answers are of the full cache's already.
  profiler::ChooseByLoss(material.tasks.empty() ? -1 : engine::kPpm, validation.tsp,
                         &result->map.tsp);
  return OkStatus();
}

// A profile is not lost because its validation fails, on memory for one: the map stays unvalidated.
Status ValidateOrWarn(const Validation& validation, const profiler::ProfileInput& input,
                      const profiler::HeldOut& held_out, profiler::ProfileResult* result) {
  if (held_out.prompts.empty()) {
    result->notes.warnings.push_back(
        fmt::format("not validated: of {} prompts none is held out, wanted at least {}",
                    validation.num_given, kHeldOutShare));
    return OkStatus();
  }
  const engine::HeadMap before = result->map;
  const Status status = Validate(validation, input, held_out, result);
  if (status.ok() || status.code() == StatusCode::kCancelled) {
    return status;
  }
  result->map = before;
  result->notes.warnings.push_back(fmt::format("not validated: {}", StatusMessage(status)));
  return OkStatus();
}

}  // namespace

StatusOr<ProfileOutcome> Profile(const ProfileRequest& request, const Clock& clock,
                                 profiler::EvalObserver& observer) {
  RuntimeOptions options = request.runtime;
  options.kv_memory_mib = 64;  // the runtime's own cache only serves its self-test
  HEADROOM_ASSIGN_OR_RETURN(const auto runtime, Runtime::Create(options, clock));
  std::optional<profiler::TextFormat> format;
  if (runtime->tokenizer() != nullptr) {
    format.emplace(profiler::TextFormat{.tokenizer = *runtime->tokenizer(),
                                        .chat_template = runtime->chat_template(),
                                        .clock = clock});
  }
  const profiler::TextFormat* text = format.has_value() ? &*format : nullptr;
  HEADROOM_ASSIGN_OR_RETURN(profiler::ProfileInput input, ReadInputs(request, *runtime, text));
  const auto num_given = static_cast<int64_t>(input.prompts.size());
  profiler::HeldOut held_out;
  if (request.validate) {
    held_out = profiler::TakeHeldOut(std::min(num_given / kHeldOutShare, kMostHeldOut), &input);
  }
  profiler::CutToLengths(request.lengths, &input);
  HEADROOM_ASSIGN_OR_RETURN(const profiler::ProfileIdentity identity, Identify(request.runtime));
  profiler::ProfileOptions settings = request.options;
  settings.version = HEADROOM_VERSION;
  settings.max_context = runtime->max_context();
  const profiler::EvalModel model = ModelOf(*runtime, clock, options.max_batch_rows);
  HEADROOM_ASSIGN_OR_RETURN(profiler::ProfileResult result,
                            profiler::RunProfile(model, runtime->geometry().dtype, input, text,
                                                 identity, settings, observer));
  result.notes.num_given = num_given;
  if (request.validate) {
    const Validation validation = {.model = model,
                                   .kv_dtype = runtime->geometry().dtype,
                                   .text = text,
                                   .eos_token_ids = runtime->eos_token_ids(),
                                   .max_context = runtime->max_context(),
                                   .seed = settings.classifier.seed,
                                   .num_given = num_given,
                                   .tsp = settings.tsp,
                                   .observer = observer};
    HEADROOM_RETURN_IF_ERROR(ValidateOrWarn(validation, input, held_out, &result));
  }
  HEADROOM_RETURN_IF_ERROR(engine::ValidateHeadMap(result.map));
  return ProfileOutcome{.map = std::move(result.map), .notes = std::move(result.notes)};
}

}  // namespace headroom::server
