// What the page calls, next to the C API: translation of one text with plain arguments, so that no script needs to know
// how structures are laid out. And what exceptions need that the C++ library for WebAssembly lacks: their tag, memory
// that throws when it is used up, and thread locals, which are never destroyed as the one thread never ends.
#include <cstdlib>
#include <new>

#include "anydepth.h"

namespace {

void* allocate(size_t size, size_t alignment) {
  void* found = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}

}  // namespace

void* operator new(size_t size) {
  void* found = std::malloc(size ? size : 1);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size ? size : 1, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

asm(R"(
  .globl __cpp_exception
  .tagtype __cpp_exception i32
__cpp_exception:
)");

extern "C" {

int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

ANYDEPTH_API void* web_allocate(size_t size) { return std::malloc(size ? size : 1); }
ANYDEPTH_API void web_free(void* memory) { std::free(memory); }

// Whether the depth at this place of the menu is there; -1: it is one that the core does not run, or an error.
ANYDEPTH_API int web_ready(anydepth_model* model, int32_t index) {
  anydepth_depth depth;
  if (anydepth_depth_at(model, index, &depth) != ANYDEPTH_OK || depth.by_word) return -1;
  return depth.ready;
}

// The outputs of one text, or null; `pair` may be null.
ANYDEPTH_API anydepth_translations* web_translate(anydepth_model* model, const char* text, size_t length,
                                                  const char* depth, const char* pair, int32_t beam, int32_t nbest) {
  anydepth_request request;
  anydepth_defaults(&request);
  request.depth = depth, request.pair = pair, request.beam = beam, request.nbest = nbest;
  return anydepth_translate(model, &text, &length, 1, &request);
}

ANYDEPTH_API const char* web_output(const anydepth_translations* translations, int32_t rank) {
  anydepth_output output;
  return anydepth_output_at(translations, 0, rank, &output) == ANYDEPTH_OK ? output.text : nullptr;
}

}  // extern "C"
