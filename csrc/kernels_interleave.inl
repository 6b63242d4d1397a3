// For x86 kernels, included inside an anonymous namespace.

// Four inputs of each row side by side: [quads, rows, QUAD] of int8, by squares of four rows and sixteen inputs.
static inline void interleave(const int8_t* values, size_t stride, int rows, int quads, int8_t* to) {
  const auto one = [&](int r, int quad) {
    __builtin_memcpy(to + (size_t(quad) * rows + r) * QUAD, values + r * stride + quad * QUAD, QUAD);
  };
  const int whole = rows < 4 ? 0 : quads / 4 * 4;
  for (int quad = 0; quad < whole; quad += 4)
    for (int next = 0; next < rows; next += 4) {
      const int r = next + 4 <= rows ? next : rows - 4;  // the last rows again
      const auto row = [&](int i) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + (r + i) * stride + quad * QUAD));
      };
      const __m128i a = row(0), b = row(1), c = row(2), d = row(3);
      const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
      const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
      const auto store = [&](int i, __m128i four) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (size_t(quad + i) * rows + r) * QUAD), four);
      };
      store(0, _mm_unpacklo_epi64(ab, cd)), store(1, _mm_unpackhi_epi64(ab, cd));
      store(2, _mm_unpacklo_epi64(ab_high, cd_high)), store(3, _mm_unpackhi_epi64(ab_high, cd_high));
    }
  for (int r = 0; r < rows; ++r)
    for (int quad = whole; quad < quads; ++quad) one(r, quad);
}
