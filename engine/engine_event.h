// An event and the request that it is for.
#pragma once

#include "engine/request.h"

namespace headroom::engine {

struct EngineEvent {
  RequestId id = 0;
  RequestEvent event;
};

}  // namespace headroom::engine
