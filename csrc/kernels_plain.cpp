// Plain C++: the reference that the fast kernels are tested against, and what runs where there are none.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

namespace anydepth {
namespace {

struct V {
  static constexpr int W = 1;
  using F = float;
  static F load(const float* p) { return *p; }
  static void store(float* p, F x) { *p = x; }
  static F load(const Half* p) { return as_float(*p); }
  static void store(Half* p, F x) { *p = to_half(x); }
  static F set(float x) { return x; }
  static F zero() { return 0.0f; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return b > a ? b : a; }
  static F min(F a, F b) { return b < a ? b : a; }
  static F abs(F x) { return std::fabs(x); }
  static F round(F x) { return std::nearbyint(x); }
  static float sum(F x) { return x; }
  static F sums(const F* x) { return *x; }
  static float maximum(F x) { return x; }
  static F pow2(F n) { return std::ldexp(1.0f, n > -200.0f ? static_cast<int>(n) : -200); }
  static int above(F x, float threshold) { return x > threshold ? 0 : 1; }
  static void store_int8(int8_t* q, F x) {
    *q = static_cast<int8_t>(x >= -127.0f ? (x <= 127.0f ? x : 127.0f) : -127.0f);
  }
};

#include "kernels_float.inl"
#include "kernels_int4.inl"

void gemm_int8(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for (int block = 0; block < w.blocks; ++block) {
    const int8_t* tiles = w.tiles + size_t(block) * w.quads * TILE * QUAD;
    for (int row = 0; row < rows; ++row) {
      int32_t sums[TILE] = {};
      const int8_t* a = x.values + size_t(row) * x.stride;
      for (int quad = 0; quad < w.quads; ++quad)
        for (int o = 0; o < TILE; ++o)
          for (int i = 0; i < QUAD; ++i) sums[o] += tiles[(quad * TILE + o) * QUAD + i] * a[quad * QUAD + i];
      float* out = target.out + row * target.stride + block * TILE;
      for (int o = 0; o < TILE; ++o) {
        const int output = block * TILE + o;
        const float offset = x.zero_points[row] * w.sums[output] + w.bias[output];
        const float p = static_cast<float>(sums[o]) * (w.scales[output] * x.scales[row]) + offset;
        if (target.epilogue == Epilogue::add)
          out[o] += target.alpha * p;
        else
          out[o] = target.epilogue == Epilogue::relu && !(p > 0.0f) ? 0.0f : p;
      }
    }
  }
}

void gemm(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for_int8_blocks<unpack_group>(w, x, target, [&](const PackedMatrix& own, const GemmOutput& to) { gemm_int8(own, x, rows, to); });
}

}  // namespace

const Kernels* plain_kernels() {
  static const Kernels kernels = {"plain", 1.0f, quantize,    normalize, gemm,
                                  transpose_keys, halve, attend, attend_memory, attend_cached, dot, gelu,
                                  log_sum_exp, minimum, argmax, next_above};
  return &kernels;
}

}  // namespace anydepth
