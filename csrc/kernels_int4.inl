// int4 weights as int8, for all kernels; included inside an anonymous namespace. The loops are simple enough for
// compilers to vectorise.

static void unpack(const PackedMatrix& w, int block, int8_t* to) {
  constexpr int LINE_OF_TWO = TILE * QUAD;  // bytes with the nibbles of two quads
  const int groups = w.quads / GROUP_QUADS;
  const uint8_t* from = w.nibbles + size_t(block) * w.quads * LINE_OF_TWO / 2;
  const int8_t* factors = w.factors + size_t(block) * groups * TILE;
  for (int group = 0; group < groups; ++group, factors += TILE) {
    int8_t factor[LINE_OF_TWO];
    for (int i = 0; i < LINE_OF_TWO; ++i) factor[i] = factors[i / QUAD];
    for (int two = 0; two < GROUP_QUADS; two += 2, from += LINE_OF_TWO, to += 2 * LINE_OF_TWO)
      for (int i = 0; i < LINE_OF_TWO; ++i) {
        to[i] = static_cast<int8_t>(((from[i] & 15) - 8) * factor[i]);
        to[i + LINE_OF_TWO] = static_cast<int8_t>(((from[i] >> 4) - 8) * factor[i]);
      }
  }
}

// Some blocks as int8: in place, or unpacked to `into`.
static PackedMatrix int8_blocks(const PackedMatrix& w, int from, int to, int8_t* into) {
  PackedMatrix some = some_blocks(w, from, to);
  if (w.nibbles == nullptr) return some;
  for (int block = from; block < to; ++block) unpack(w, block, into + size_t(block - from) * w.quads * TILE * QUAD);
  some.tiles = into, some.nibbles = nullptr, some.factors = nullptr;
  return some;
}

// gemm(blocks, target) for those that fit in the scratch memory of `x`; int8 all at once.
template <class Gemm>
static void for_int8_blocks(const PackedMatrix& w, const QuantizedRows& x, const GemmOutput& target, const Gemm& gemm) {
  const int step = w.nibbles == nullptr ? w.blocks : UNPACKED_BLOCKS;
  for (int block = 0; block < w.blocks; block += step) {
    const int end = block + step < w.blocks ? block + step : w.blocks;
    GemmOutput own = target;
    own.out += size_t(block) * TILE;
    gemm(int8_blocks(w, block, end, x.tiles), own);
  }
}
