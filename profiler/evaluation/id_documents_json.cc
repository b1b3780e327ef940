#include <nlohmann/json.hpp>

#include "profiler/evaluation/documents.h"
#include "profiler/evaluation/json_lines_json.h"

namespace headroom::profiler {

StatusOr<std::vector<Document>> ParseIdDocuments(std::string_view text, const std::string& source,
                                                 int32_t vocab_size, const DocumentCut& cut) {
  std::vector<Document> documents;
  const Status read = ForEachJsonLine(
      text, source, [&](const nlohmann::json& line, const std::string& where) -> Status {
        if (documents.size() >= static_cast<size_t>(cut.max_documents)) {
          return OkStatus();
        }
        Document document;
        document.id = fmt::format("{}#{}", source, documents.size());
        document.source = source;
        if (line.is_array()) {
          HEADROOM_ASSIGN_OR_RETURN(document.ids, ReadIds(line, where, vocab_size));
        } else {
          HEADROOM_ASSIGN_OR_RETURN(document.ids, ReadIdField(line, "ids", where, vocab_size));
          if (line.contains("id")) {
            HEADROOM_ASSIGN_OR_RETURN(document.id, ReadStringField(line, "id", where));
          }
        }
        if (document.ids.size() > static_cast<size_t>(cut.num_tokens)) {
          document.ids.resize(static_cast<size_t>(cut.num_tokens));
        }
        documents.push_back(std::move(document));
        return OkStatus();
      });
  HEADROOM_RETURN_IF_ERROR(read);
  if (documents.empty()) {
    return InvalidArgument("{}: wanted at least one line of ids", source);
  }
  return documents;
}

}  // namespace headroom::profiler
