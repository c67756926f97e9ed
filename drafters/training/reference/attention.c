/* Causal attention for training, heads of 64, bfloat16 in and out, float32 sums: AVX-512 with bf16 products.
 *
 * Everything is made of one product of tiles, C[64 x 64] += A[64 x 64] * B[64 x 64]: A lies in rows, B in pairs, that is
 * as [32][64][2], so that the two neighbours along the summed axis share one 32-bit lane. Sequences are whole tiles.
 * Forward keeps a row block of scores; backward makes them again, transposed (keys down, queries along), so that what
 * belongs to a query lies along a vector. Threads share batch x key heads; a thread owns the sums it writes.
 */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define T 64
typedef uint16_t bf16;

static inline __m512bh pairs(const bf16 *at) { return (__m512bh)_mm512_loadu_si512(at); }
static inline __m512bh spread(const bf16 *at) {
    int32_t word;
    memcpy(&word, at, 4);
    return (__m512bh)_mm512_set1_epi32(word);
}

/* C[64][ldc] (+)= A[64][lda] * B[32][64][2] */
static void product(const bf16 *a, int lda, const bf16 *b, float *c, int ldc, int add) {
    for (int r = 0; r < T; r += 4) {
        __m512 sum[4][4];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                sum[i][j] = add ? _mm512_loadu_ps(c + (size_t)(r + i) * ldc + 16 * j) : _mm512_setzero_ps();
        for (int p = 0; p < T / 2; p++) {
            const bf16 *row = b + (size_t)p * T * 2;
            __m512bh b0 = pairs(row), b1 = pairs(row + 32), b2 = pairs(row + 64), b3 = pairs(row + 96);
            for (int i = 0; i < 4; i++) {
                __m512bh left = spread(a + (size_t)(r + i) * lda + 2 * p);
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], left, b0);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], left, b1);
                sum[i][2] = _mm512_dpbf16_ps(sum[i][2], left, b2);
                sum[i][3] = _mm512_dpbf16_ps(sum[i][3], left, b3);
            }
        }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) _mm512_storeu_ps(c + (size_t)(r + i) * ldc + 16 * j, sum[i][j]);
    }
}

/* e^x for x <= 0: 2^n times a polynomial of the rest; below -87 it is nothing */
static inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    __m512 y = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
    __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_mul_ps(_mm512_sub_ps(y, n), _mm512_set1_ps(0.69314718f));
    __m512 e = _mm512_set1_ps(1.0f / 120);
    e = _mm512_fmadd_ps(e, f, _mm512_set1_ps(1.0f / 24));
    e = _mm512_fmadd_ps(e, f, _mm512_set1_ps(1.0f / 6));
    e = _mm512_fmadd_ps(e, f, _mm512_set1_ps(0.5f));
    e = _mm512_fmadd_ps(e, f, _mm512_set1_ps(1.0f));
    e = _mm512_fmadd_ps(e, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(e, n);
}

static inline void round16(bf16 *to, __m512 values) {
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(values));
}
static inline __m512 widen(const bf16 *at) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}

/* rows [64][64] -> pairs along the columns: to[p][r] = (rows[r][2p], rows[r][2p + 1]) */
static void across(const bf16 *rows, bf16 *to) {
    for (int r = 0; r < T; r++)
        for (int p = 0; p < T / 2; p++) memcpy(to + (size_t)(p * T + r) * 2, rows + r * T + 2 * p, 4);
}
/* rows [64][64] -> pairs along the rows: to[p][c] = (rows[2p][c], rows[2p + 1][c]) */
static void down(const bf16 *rows, bf16 *to) {
    for (int p = 0; p < T / 2; p++)
        for (int c = 0; c < T; c += 16) {
            __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(rows + 2 * p * T + c)));
            __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(rows + (2 * p + 1) * T + c)));
            _mm512_storeu_si512(to + (size_t)(p * T + c) * 2, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}
static void turned(const bf16 *rows, bf16 *to) {
    for (int r = 0; r < T; r++)
        for (int c = 0; c < T; c++) to[c * T + r] = rows[r * T + c];
}

/* q, out [batch][heads][length][64]; k, v [batch][kv_heads][length][64]; lse [batch][heads][length] */
void attention_forward(int batch, int heads, int kv_heads, int length, float scale, const bf16 *q, const bf16 *k,
                       const bf16 *v, bf16 *out, float *lse) {
    const int group = heads / kv_heads, tiles = length / T;
    const size_t plane = (size_t)length * T;
#pragma omp parallel for schedule(static)
    for (int task = 0; task < batch * kv_heads; task++) {
        bf16 *kt = aligned_alloc(64, plane * 2), *vp = aligned_alloc(64, plane * 2);
        bf16 *chances = aligned_alloc(64, plane * 2);
        float *scores = aligned_alloc(64, plane * 4), sums[T * T];
        const bf16 *key = k + task * plane, *value = v + task * plane;
        for (int j = 0; j < tiles; j++) {
            across(key + (size_t)j * T * T, kt + (size_t)j * T * T);
            down(value + (size_t)j * T * T, vp + (size_t)j * T * T);
        }
        for (int g = 0; g < group; g++) {
            const size_t head = (size_t)(task / kv_heads) * heads + (task % kv_heads) * group + g;
            for (int i = 0; i < tiles; i++) {
                const bf16 *query = q + head * plane + (size_t)i * T * T;
                const int seen = (i + 1) * T;
                float total[T];
                for (int j = 0; j <= i; j++) product(query, T, kt + (size_t)j * T * T, scores + j * T, length, 0);
                for (int r = 0; r < T; r++) {
                    float *row = scores + (size_t)r * length;
                    for (int c = i * T + r + 1; c < seen; c++) row[c] = -INFINITY;
                    __m512 most = _mm512_loadu_ps(row);
                    for (int c = 16; c < seen; c += 16) most = _mm512_max_ps(most, _mm512_loadu_ps(row + c));
                    const float top = _mm512_reduce_max_ps(most);
                    __m512 sum = _mm512_setzero_ps();
                    for (int c = 0; c < seen; c += 16) {
                        __m512 x = _mm512_sub_ps(_mm512_loadu_ps(row + c), _mm512_set1_ps(top));
                        x = exponential(_mm512_mul_ps(x, _mm512_set1_ps(scale)));
                        if (c + 16 > i * T + r + 1) {  /* keys after the query weigh nothing */
                            int keep = i * T + r + 1 - c;
                            x = keep <= 0 ? _mm512_setzero_ps() : _mm512_maskz_mov_ps((__mmask16)((1u << keep) - 1), x);
                        }
                        sum = _mm512_add_ps(sum, x);
                        round16(chances + (size_t)r * length + c, x);
                    }
                    total[r] = _mm512_reduce_add_ps(sum);
                    lse[head * length + i * T + r] = top * scale + logf(total[r]);
                }
                for (int j = 0; j <= i; j++)
                    product(chances + j * T, length, vp + (size_t)j * T * T, sums, T, j > 0);
                bf16 *to = out + head * plane + (size_t)i * T * T;
                for (int r = 0; r < T; r++)
                    for (int c = 0; c < T; c += 16)
                        round16(to + r * T + c,
                                _mm512_mul_ps(_mm512_loadu_ps(sums + r * T + c), _mm512_set1_ps(1.0f / total[r])));
            }
        }
        free(kt), free(vp), free(chances), free(scores);
    }
}

/* gradients like their values; out, lse as attention_forward wrote them */
void attention_backward(int batch, int heads, int kv_heads, int length, float scale, const bf16 *q, const bf16 *k,
                        const bf16 *v, const bf16 *out, const float *lse, const bf16 *grad, bf16 *dq, bf16 *dk,
                        bf16 *dv) {
    const int group = heads / kv_heads, tiles = length / T;
    const size_t plane = (size_t)length * T, tile = T * T;
#pragma omp parallel for schedule(static)
    for (int task = 0; task < batch * kv_heads; task++) {
        bf16 *packed = aligned_alloc(64, 4 * plane * 2);
        bf16 *qt = packed, *qp = packed + plane, *gt = packed + 2 * plane, *gp = packed + 3 * plane;
        float *dqt = aligned_alloc(64, plane * 4), *dks = calloc(plane, 4), *dvs = calloc(plane, 4);
        float *delta = malloc((size_t)length * 4);
        float scores[T * T], slopes[T * T];
        bf16 kturned[T * T], p16[T * T], s16[T * T], sp[T * T];
        const bf16 *key = k + task * plane, *value = v + task * plane;
        for (int g = 0; g < group; g++) {
            const size_t head = (size_t)(task / kv_heads) * heads + (task % kv_heads) * group + g;
            const bf16 *query = q + head * plane, *slope = grad + head * plane;
            const float *sums = lse + head * length;
            for (int i = 0; i < tiles; i++) {
                across(query + i * tile, qt + i * tile), down(query + i * tile, qp + i * tile);
                across(slope + i * tile, gt + i * tile), down(slope + i * tile, gp + i * tile);
            }
            for (int r = 0; r < length; r++) {
                __m512 sum = _mm512_setzero_ps();
                for (int c = 0; c < T; c += 16)
                    sum = _mm512_fmadd_ps(widen(out + head * plane + (size_t)r * T + c),
                                          widen(slope + (size_t)r * T + c), sum);
                delta[r] = _mm512_reduce_add_ps(sum);
            }
            memset(dqt, 0, plane * 4);
            for (int j = 0; j < tiles; j++) {
                turned(key + j * tile, kturned);
                for (int i = j; i < tiles; i++) {
                    product(key + j * tile, T, qt + i * tile, scores, T, 0);
                    product(value + j * tile, T, gt + i * tile, slopes, T, 0);
                    for (int r = 0; r < T; r++)
                        for (int c = 0; c < T; c += 16) {
                            __m512 x = _mm512_loadu_ps(scores + r * T + c);
                            x = _mm512_fmsub_ps(x, _mm512_set1_ps(scale), _mm512_loadu_ps(sums + i * T + c));
                            x = exponential(_mm512_min_ps(x, _mm512_setzero_ps()));
                            if (i == j && c < r) {  /* queries before the key did not see it */
                                int drop = r - c;
                                x = drop >= 16 ? _mm512_setzero_ps()
                                               : _mm512_maskz_mov_ps((__mmask16)(0xffffu << drop), x);
                            }
                            __m512 d = _mm512_sub_ps(_mm512_loadu_ps(slopes + r * T + c),
                                                     _mm512_loadu_ps(delta + i * T + c));
                            round16(p16 + r * T + c, x);
                            round16(s16 + r * T + c, _mm512_mul_ps(_mm512_mul_ps(x, d), _mm512_set1_ps(scale)));
                        }
                    product(p16, T, gp + i * tile, dvs + j * tile, T, 1);
                    product(s16, T, qp + i * tile, dks + j * tile, T, 1);
                    down(s16, sp);
                    product(kturned, T, sp, dqt + i * T, length, 1);
                }
            }
            for (int r = 0; r < length; r++)
                for (int c = 0; c < T; c += 16) {
                    float some[16];
                    for (int n = 0; n < 16; n++) some[n] = dqt[(size_t)(c + n) * length + r];
                    round16(dq + head * plane + (size_t)r * T + c, _mm512_loadu_ps(some));
                }
        }
        for (size_t n = 0; n < plane; n += 16) {
            round16(dk + task * plane + n, _mm512_loadu_ps(dks + n));
            round16(dv + task * plane + n, _mm512_loadu_ps(dvs + n));
        }
        free(packed), free(dqt), free(dks), free(dvs), free(delta);
    }
}
