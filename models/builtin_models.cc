#include "models/embedded_data.h"
#include "models/file_error.h"
#include "models/model_files.h"
#include "models/tiny_model.h"

namespace headroom::models {

StatusOr<LoadedModel> LoadBuiltinModel(std::string_view name) {
  if (name == "tiny") {
    return MakeTinyModel();
  }
  std::string known = "tiny";
  for (const EmbeddedModel& embedded : EmbeddedModels()) {
    if (name == embedded.name) {
      return LoadFromMemory(embedded.config_json, embedded.safetensors,
                            fmt::format("builtin:{}", name));
    }
    known += fmt::format(", {}", embedded.name);
  }
  return NotFound("builtin:{}: no such model, wanted one of: {}", Printable(name), known);
}

}  // namespace headroom::models
