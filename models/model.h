// One forward pass over a batch of row segments. Implemented by Transformer and by the tests'
// FakeModel.
#pragma once

#include "base/status.h"
#include "models/config.h"
#include "models/forward_batch.h"
#include "models/kv_store.h"

namespace headroom::models {

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;

  // Runs the batch. Engine thread only. `batch` is well-formed (CHECKed): it is the engine's own.
  // A sequence's results do not depend on the other segments, bit for bit.
  virtual void Forward(const ForwardBatch& batch, KvStore& kv) = 0;
};

}  // namespace headroom::models
