#include "base/thread_pool.h"
