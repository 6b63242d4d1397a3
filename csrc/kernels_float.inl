// The kernels on floats, written once over a vector type V of each instruction set:
//   V::W floats; F; load store set zero add sub mul div fma max min abs round sum maximum pow2 above
//   store_int8
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
    const V::F value = V::round(V::mul(V::sub(V::load(x + i), V::set(*zero_point)), V::set(inverse)));
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

// x Phi(x). Phi by an approximation of erf that is within 1.5e-7 (Abramowitz and Stegun 7.1.26), or by a tanh.
static void gelu(float* x, int n, bool by_tanh) {
  const V::F one = V::set(1.0f), half = V::set(0.5f);
  for (int i = 0; i < n; i += V::W) {  // n is padded
    const V::F value = V::load(x + i), size = V::abs(value);
    V::F outer;  // 1 - Phi(|x|)
    if (by_tanh) {
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

static inline float dot(const float* a, const float* b, int n) {
  V::F total = V::zero();
  int i = 0;
  for (; i + V::W <= n; i += V::W) total = V::fma(V::load(a + i), V::load(b + i), total);
  float found = V::sum(total);
  for (; i < n; ++i) found += a[i] * b[i];
  return found;
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

static void attend(const float* query, size_t query_stride, int queries, const float* const* key_value, int positions,
                   int heads, int e, float* scores, float* out, size_t out_stride) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(e));
  const int d = heads * e;
  for (int head = 0; head < heads; ++head) {
    const int start = head * e;
    for (int row = 0; row < queries; ++row) {
      const float* q = query + row * query_stride + start;
      for (int p = 0; p < positions; ++p) scores[p] = scale * dot(q, key_value[p] + start, e);
      softmax(scores, positions);
      float* context = out + row * out_stride + start;
      int i = 0;
      for (; i + V::W <= e; i += V::W) {
        V::F total = V::zero();
        for (int p = 0; p < positions; ++p)
          total = V::fma(V::set(scores[p]), V::load(key_value[p] + d + start + i), total);
        V::store(context + i, total);
      }
      for (; i < e; ++i) {
        float total = 0.0f;
        for (int p = 0; p < positions; ++p) total += scores[p] * key_value[p][d + start + i];
        context[i] = total;
      }
    }
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
