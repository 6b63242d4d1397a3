// int4 weights as int8, for all kernels; included inside an anonymous namespace. The loops are simple enough for
// compilers to vectorise.

// A group of a block.
static inline void unpack_group(const uint8_t* from, const int8_t* factors, int8_t* to) {
  constexpr int STEP = TILE * QUAD;
  int8_t factor[STEP];
  for (int i = 0; i < STEP; ++i) factor[i] = factors[i / QUAD];
  for (int two = 0; two < GROUP_QUADS / 2; ++two, from += STEP, to += 2 * STEP)
    for (int i = 0; i < STEP; ++i) {
      to[i] = static_cast<int8_t>(((from[i] & 15) - 8) * factor[i]);
      to[i + STEP] = static_cast<int8_t>(((from[i] >> 4) - 8) * factor[i]);
    }
}

using UnpackGroup = void (*)(const uint8_t*, const int8_t*, int8_t*);

// Some blocks as int8: in place, or unpacked to `into`.
template <UnpackGroup UNPACK>
static PackedMatrix int8_blocks(const PackedMatrix& w, int from, int to, int8_t* into) {
  PackedMatrix some = some_blocks(w, from, to);
  if (w.nibbles == nullptr) return some;
  for (int group = 0; group < (to - from) * w.quads / GROUP_QUADS; ++group)
    UNPACK(some.nibbles + group * (GROUP * TILE / 2), some.factors + group * TILE, into + group * (GROUP * TILE));
  some.tiles = into, some.nibbles = nullptr, some.factors = nullptr;
  return some;
}

// gemm(blocks, target) for those that fit in the scratch memory of `x`; int8 all at once.
template <UnpackGroup UNPACK, class Gemm>
static void for_int8_blocks(const PackedMatrix& w, const QuantizedRows& x, const GemmOutput& target, const Gemm& gemm) {
  const int step = w.nibbles == nullptr ? w.blocks : UNPACKED_BLOCKS;
  for (int block = 0; block < w.blocks; block += step) {
    const int end = block + step < w.blocks ? block + step : w.blocks;
    GemmOutput own = target;
    own.out += size_t(block) * TILE;
    gemm(int8_blocks<UNPACK>(w, block, end, x.tiles), own);
  }
}
