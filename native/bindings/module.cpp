// octavo._native: the border between Python and the core. Checks shapes and ranges, releases the GIL, calls.
#include "bindings/arrays.h"

NB_MODULE(_native, module) {
  module.doc() = "octavo's native core: thread pool, packed weights, tape, sampler.";
  octavo::bind_runtime(module);
  octavo::bind_weights(module);
  octavo::bind_kvcache(module);
  octavo::bind_tape(module);
  octavo::bind_sampler(module);
}
