// The kernels on floats, written once over a vector type V of each instruction set:
//   V::W floats; F; load store set zero add sub mul div fma max min abs round sum sums maximum pow2 above
//   store_int8; load and store also of Half
// Included inside an anonymous namespace, after V. The last few elements of a row go one by one.

static void quantize(const float* x, int n, int8_t* q, float* scale, float* zero_point, int32_t* sum) {
  V::F most = V::set(x[0]), least = most;
  int i = 0;
  for (; i + V::W <= n; i += V::W) {
    const V::F value = V::load(x + i);
    most = V::max(most, value), least = V::min(least, value);
  }
  const int whole = i;
  float highest = V::maximum(most), lowest = -V::maximum(V::sub(V::zero(), least));
  for (; i < n; ++i) highest = x[i] > highest ? x[i] : highest, lowest = x[i] < lowest ? x[i] : lowest;
  const float span = highest - lowest, half = 0.5f * (highest + lowest);
  const bool sane = span < 1e30f && std::fabs(half) < 1e30f;  // false for NaN
  *scale = sane ? span / 254.0f : 0.0f;
  *zero_point = sane ? half : 0.0f;
  const float inverse = sane && span > 1e-30f ? 254.0f / span : 0.0f;
  V::F total = V::zero();
  for (i = 0; i < whole; i += V::W) {
    V::F value = V::round(V::mul(V::sub(V::load(x + i), V::set(*zero_point)), V::set(inverse)));
    value = V::max(V::set(-127.0f), V::min(V::set(127.0f), value));  // so that the sum is that of what is stored
    total = V::add(total, value);
    V::store_int8(q + i, value);
  }
  float all = V::sum(total);
  for (; i < n; ++i) {
    const float value = std::nearbyint((x[i] - *zero_point) * inverse);
    const float kept = value >= -127.0f ? (value <= 127.0f ? value : 127.0f) : -127.0f;
    q[i] = static_cast<int8_t>(kept);
    all += kept;
  }
  for (; i < padded(n); ++i) q[i] = 0;
  *sum = std::fabs(all) < 2e9f ? static_cast<int32_t>(all) : 0;
}

static void normalize(const float* x, int n, const float* weight, const float* bias, float epsilon, float* out) {
  V::F total = V::zero();
  int i = 0;
  for (; i + V::W <= n; i += V::W) total = V::add(total, V::load(x + i));
  const int whole = i;
  float mean = V::sum(total);
  for (; i < n; ++i) mean += x[i];
  mean /= static_cast<float>(n);
  const V::F center = V::set(mean);
  V::F squares = V::zero();
  for (i = 0; i < whole; i += V::W) {
    const V::F off = V::sub(V::load(x + i), center);
    squares = V::fma(off, off, squares);
  }
  float variance = V::sum(squares);
  for (; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float inverse = 1.0f / std::sqrt(variance / static_cast<float>(n) + epsilon);
  const V::F factor = V::set(inverse);
  for (i = 0; i < padded(n); i += V::W) {  // weight and bias are zero in the padding
    const V::F value = V::mul(V::sub(V::load(x + i), center), factor);
    V::store(out + i, V::fma(value, V::load(weight + i), V::load(bias + i)));
  }
}

// e^x for x <= 0, to a few units in the last place: 2^n e^r with |r| <= ln(2) / 2, e^r by its series.
static inline V::F exponential(V::F x) {
  x = V::max(x, V::set(-87.0f));
  const V::F n = V::round(V::mul(x, V::set(1.44269504f)));
  V::F r = V::fma(n, V::set(-0.693359375f), x);
  r = V::fma(n, V::set(2.12194440e-4f), r);
  V::F y = V::set(1.0f / 720.0f);
  y = V::fma(y, r, V::set(1.0f / 120.0f));
  y = V::fma(y, r, V::set(1.0f / 24.0f));
  y = V::fma(y, r, V::set(1.0f / 6.0f));
  y = V::fma(y, r, V::set(0.5f));
  y = V::fma(y, r, V::set(1.0f));
  y = V::fma(y, r, V::set(1.0f));
  return V::mul(y, V::pow2(n));
}

// x Phi(x). Phi by an approximation of erf that is within 1.5e-7 (Abramowitz and Stegun 7.1.26), or by a tanh; or the
// logistic function in its place.
static void gelu(float* x, int n, Curve curve) {
  const V::F one = V::set(1.0f), half = V::set(0.5f);
  for (int i = 0; i < n; i += V::W) {  // n is padded
    const V::F value = V::load(x + i), size = V::abs(value);
    V::F outer;  // 1 - Phi(|x|)
    if (curve == Curve::swish) {
      const V::F decay = exponential(V::sub(V::zero(), size));
      outer = V::div(decay, V::add(one, decay));
    } else if (curve == Curve::gelu_tanh) {
      const V::F cubic = V::mul(size, V::fma(V::mul(size, size), V::set(0.044715f), one));
      const V::F decay =
          exponential(V::mul(cubic, V::set(-1.5957691216f)));  // e^(-2u), and tanh(u) = (1 - it) / (1 + it)
      outer = V::div(decay, V::add(one, decay));
    } else {
      const V::F t = V::div(one, V::fma(size, V::set(0.3275911f * 0.70710678f), one));
      V::F series = V::set(1.061405429f);
      series = V::fma(series, t, V::set(-1.453152027f));
      series = V::fma(series, t, V::set(1.421413741f));
      series = V::fma(series, t, V::set(-0.284496736f));
      series = V::fma(series, t, V::set(0.254829592f));
      outer = V::mul(V::mul(half, V::mul(series, t)), exponential(V::mul(V::mul(size, size), V::set(-0.5f))));
    }
    // max(x, 0) - |x| (1 - Phi(|x|)) holds for either sign
    V::store(x + i, V::sub(V::max(value, V::zero()), V::mul(size, outer)));
  }
}

static float maximum(const float* x, int n) {
  V::F most = V::set(-3.0e38f);
  int i = 0;
  for (; i + V::W <= n; i += V::W) most = V::max(most, V::load(x + i));
  float found = V::maximum(most);
  for (; i < n; ++i) found = x[i] > found ? x[i] : found;
  return found;
}

static float minimum(const float* x, int n) {
  V::F least = V::set(3.0e38f);
  int i = 0;
  for (; i + V::W <= n; i += V::W) least = V::min(least, V::load(x + i));
  float found = -V::maximum(V::sub(V::zero(), least));
  for (; i < n; ++i) found = x[i] < found ? x[i] : found;
  return found;
}

template <typename T>
static inline float dot_of(const float* a, const T* b, int n) {
  V::F total = V::zero();
  int i = 0;
  for (; i + V::W <= n; i += V::W) total = V::fma(V::load(a + i), V::load(b + i), total);
  float found = V::sum(total);
  for (; i < n; ++i) found += a[i] * as_float(b[i]);
  return found;
}

static float dot(const float* a, const float* b, int n) { return dot_of(a, b, n); }

static void halve(const float* x, int n, Half* out) {
  const V::F most = V::set(LARGEST_HALF), least = V::set(-LARGEST_HALF);
  int i = 0;
  for (; i + V::W <= n; i += V::W) V::store(out + i, V::max(least, V::min(most, V::load(x + i))));
  for (; i < n; ++i) out[i] = to_half(x[i] < LARGEST_HALF ? (x[i] > -LARGEST_HALF ? x[i] : -LARGEST_HALF) : LARGEST_HALF);
}

// In place; `x` has room for a multiple of TILE.
static void softmax(float* x, int n) {
  const float most = maximum(x, n);
  for (int i = n; i < padded(n); ++i) x[i] = -3.0e38f;
  V::F total = V::zero();
  for (int i = 0; i < n; i += V::W) {
    const V::F value = exponential(V::sub(V::load(x + i), V::set(most)));
    V::store(x + i, value);
    total = V::add(total, value);
  }
  const V::F inverse = V::set(1.0f / V::sum(total));
  for (int i = 0; i < n; i += V::W) V::store(x + i, V::mul(V::load(x + i), inverse));
}

static void transpose_keys(const float* keys, size_t stride, int positions, int heads, int e, float* out) {
  for (int head = 0; head < heads; ++head)
    for (int from = 0; from < positions; from += TILE, out += size_t(e) * TILE) {
      const int count = positions - from < TILE ? positions - from : TILE;
      const float* key = keys + from * stride + head * e;
      for (int p = 0; p < count; ++p, key += stride)
        for (int i = 0; i < e; ++i) out[i * TILE + p] = key[i];
      for (int p = count; p < TILE; ++p)
        for (int i = 0; i < e; ++i) out[i * TILE + p] = 0.0f;
    }
}

// Scores of ROWS queries for BLOCKS * TILE positions. Each is one sum over e in order, whatever is computed with it.
template <int ROWS, int BLOCKS, typename T>
static inline void score(const float* query, size_t query_stride, const T* keys, int e, float scale, float* scores,
                         size_t score_stride) {
  constexpr int EACH = TILE / V::W;
  V::F sums[ROWS][BLOCKS * EACH];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int b = 0; b < BLOCKS * EACH; ++b) sums[r][b] = V::zero();
  }
  for (int i = 0; i < e; ++i) {
    V::F own[BLOCKS * EACH];
    ANYDEPTH_UNROLL
    for (int b = 0; b < BLOCKS * EACH; ++b)
      own[b] = V::load(keys + (size_t(b / EACH) * e + i) * TILE + b % EACH * V::W);
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const V::F one = V::set(query[r * query_stride + i]);
      ANYDEPTH_UNROLL
      for (int b = 0; b < BLOCKS * EACH; ++b) sums[r][b] = V::fma(one, own[b], sums[r][b]);
    }
  }
  const V::F factor = V::set(scale);
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int b = 0; b < BLOCKS * EACH; ++b) V::store(scores + r * score_stride + b * V::W, V::mul(factor, sums[r][b]));
  }
}

// VECTORS * W columns of the values, weighted by the scores of ROWS queries. `value(p)` is where a position's are.
template <int ROWS, int VECTORS, typename Value>
static inline void mix(const float* scores, size_t score_stride, int positions, const Value& value, float* out,
                       size_t out_stride) {
  V::F sums[ROWS][VECTORS];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int v = 0; v < VECTORS; ++v) sums[r][v] = V::zero();
  }
  for (int p = 0; p < positions; ++p) {
    const auto* from = value(p);
    V::F own[VECTORS];
    ANYDEPTH_UNROLL
    for (int v = 0; v < VECTORS; ++v) own[v] = V::load(from + v * V::W);
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const V::F share = V::set(scores[r * score_stride + p]);
      ANYDEPTH_UNROLL
      for (int v = 0; v < VECTORS; ++v) sums[r][v] = V::fma(share, own[v], sums[r][v]);
    }
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int v = 0; v < VECTORS; ++v) V::store(out + r * out_stride + v * V::W, sums[r][v]);
  }
}

// Softmax of the scores, and the mean of the values weighted by it, for one head of ROWS queries.
template <int ROWS, typename Value>
static inline void weigh(float* scores, size_t score_stride, const AttentionShape& shape, const Value& value, float* out,
                         size_t out_stride) {
  constexpr int VECTORS = V::W == 16 ? 4 : V::W == 1 ? 8 : 2;
  for (int r = 0; r < ROWS; ++r) softmax(scores + r * score_stride, shape.positions);
  const auto at = [&](int column) { return [&value, column](int p) { return value(p) + column; }; };
  int i = 0;
  for (; i + VECTORS * V::W <= shape.e; i += VECTORS * V::W)
    mix<ROWS, VECTORS>(scores, score_stride, shape.positions, at(i), out + i, out_stride);
  for (; i + V::W <= shape.e; i += V::W)
    mix<ROWS, 1>(scores, score_stride, shape.positions, at(i), out + i, out_stride);
  for (; i < shape.e; ++i)
    for (int r = 0; r < ROWS; ++r) {
      float total = 0.0f;
      for (int p = 0; p < shape.positions; ++p) total += scores[r * score_stride + p] * as_float(value(p)[i]);
      out[r * out_stride + i] = total;
    }
}

template <int ROWS, typename T>
static inline void attend_rows(const float* query, size_t query_stride, const T* keys, const T* values,
                               size_t value_stride, const AttentionShape& shape, float* scores, float* out,
                               size_t out_stride) {
  constexpr int BLOCKS = V::W == 16 ? 4 : 1;
  const int all = padded(shape.positions) / TILE;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.e));
  int block = 0;
  for (; block + BLOCKS <= all; block += BLOCKS)
    score<ROWS, BLOCKS>(query, query_stride, keys + size_t(block) * shape.e * TILE, shape.e, scale,
                        scores + block * TILE, size_t(all) * TILE);
  for (; block < all; ++block)
    score<ROWS, 1>(query, query_stride, keys + size_t(block) * shape.e * TILE, shape.e, scale, scores + block * TILE,
                   size_t(all) * TILE);
  const auto value = [&](int p) { return values + p * value_stride; };
  weigh<ROWS>(scores, size_t(all) * TILE, shape, value, out, out_stride);
}

template <typename T>
static inline void attend_all(const float* query, size_t query_stride, int queries, const T* keys,
                              const Values<T>& values, const AttentionShape& shape, float* scores, float* out,
                              size_t out_stride) {
  for (int head = 0; head < shape.heads; ++head) {
    const int start = head * shape.e;
    const T* own = keys + size_t(start) * padded(shape.positions);
    int row = 0;
    const auto some = [&](auto rows) {
      attend_rows<decltype(rows)::value>(query + row * query_stride + start, query_stride, own,
                                         values.first + head * values.head_stride, values.stride, shape, scores,
                                         out + row * out_stride + start, out_stride);
      row += decltype(rows)::value;
    };
    while (row + AttentionShape::ROWS <= queries) some(std::integral_constant<int, AttentionShape::ROWS>());
    while (row + 2 <= queries) some(std::integral_constant<int, 2>());
    while (row < queries) some(std::integral_constant<int, 1>());
  }
}

static void attend(const float* query, size_t query_stride, int queries, const float* keys, const Values<float>& values,
                   const AttentionShape& shape, float* scores, float* out, size_t out_stride) {
  attend_all(query, query_stride, queries, keys, values, shape, scores, out, out_stride);
}

static void attend_memory(const float* query, size_t query_stride, int queries, const Half* keys,
                          const Values<Half>& values, const AttentionShape& shape, float* scores, float* out,
                          size_t out_stride) {
  attend_all(query, query_stride, queries, keys, values, shape, scores, out, out_stride);
}

static void attend_cached(const float* query, const Half* const* key_value, const AttentionShape& shape, int first,
                          int last, float* scores, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.e));
  const size_t own = size_t(TILE) * shape.e;  // of a head
  for (int head = first; head < last; ++head) {
    const int start = head * shape.e;
    if (shape.e % V::W == 0) {
      for (int p = 0; p < shape.positions; p += V::W) {  // beyond the last position the last again
        V::F products[V::W];
        ANYDEPTH_UNROLL
        for (int k = 0; k < V::W; ++k) {
          const Half* key = key_value[p + k < shape.positions ? p + k : shape.positions - 1] + head * own;
          products[k] = V::mul(V::load(query + start), V::load(key));
          for (int i = V::W; i < shape.e; i += V::W)
            products[k] = V::fma(V::load(query + start + i), V::load(key + i), products[k]);
        }
        V::store(scores + p, V::mul(V::set(scale), V::sums(products)));
      }
    } else {
      for (int p = 0; p < shape.positions; ++p) scores[p] = scale * dot_of(query + start, key_value[p] + head * own, shape.e);
    }
    const auto value = [&](int p) { return key_value[p] + (shape.heads + head) * own; };
    weigh<1>(scores, padded(shape.positions), shape, value, out + start, 0);
  }
}

static float log_sum_exp(const float* x, int n) {
  const float most = maximum(x, n);
  V::F total = V::zero();
  int i = 0;
  for (; i + V::W <= n; i += V::W) total = V::add(total, exponential(V::sub(V::load(x + i), V::set(most))));
  float sum = V::sum(total);
  for (; i < n; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

static int next_above(const float* x, int from, int n, float threshold) {
  int i = from;
  for (; i + V::W <= n; i += V::W) {
    const int first = V::above(V::load(x + i), threshold);
    if (first < V::W) return i + first;
  }
  for (; i < n; ++i)
    if (x[i] > threshold) return i;
  return n;
}

// The first of the largest; 0 if all are NaN.
static int argmax(const float* x, int n) {
  const float most = maximum(x, n);
  int i = next_above(x, 0, n, std::nextafter(most, -std::numeric_limits<float>::infinity()));
  return i < n ? i : 0;
}
