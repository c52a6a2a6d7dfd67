/* The practical limit: the paper's population (powers 2, 4 and 6) by hand, with nothing general about it.

   The same coins (Philox4x32-10, one block for four clients), the same arithmetic in the same order, two rounds a
   pass, and threads that meet after each pass, so that the trajectory is the engines', bit for bit. With AVX-512 both
   halves of a pass are written in vector instructions, since compilers do not find all of them; elsewhere the
   compiler does what it can. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 1024, PADDING = 128, SPINS = 2000 };
enum { MULTIPLIER_0 = 0xD2511F53u, MULTIPLIER_1 = 0xCD9E8D57u, STEP_0 = 0x9E3779B9u, STEP_1 = 0xBB67AE85u };

typedef struct {
    double *participations;
    const double *terms; /* three rows, one number a client */
    int64_t clients;
    uint32_t key[2];
    double coin; /* 0 is the classical algorithm */
} crowd;

typedef struct {
    int64_t round;
    double rounds;     /* behind the averages */
    double signals[2]; /* that decide this round and the next */
    int two;           /* whether there is a next one in this pass */
} pass;

static inline double chance(const double *scaled, double passed, double inverse, double signal, double coin)
{
    double x = passed * inverse;
    x = x > 0x1p-30 ? x : 0x1p-30;
    double square = x * x;
    double slope = ((scaled[2] * square + scaled[1]) * square + scaled[0]) * x;
    double intent = signal * x / slope;
    intent = intent > 0.0 ? intent : 0.0;
    intent = intent < 1.0 ? intent : 1.0;
    double probability = coin + (1.0 - coin) * intent;
    probability = probability > coin ? probability : coin;
    return probability < 1.0 ? probability : 1.0;
}

/* With `two` and the rest known where it is compiled in, the compiler can look eight clients ahead by itself. */
static inline void plain_decisions(const crowd *all, int64_t first, int64_t count, const pass *now,
                                   uint32_t *const words[2], int64_t *totals, const int two)
{
    double *restrict passed = all->participations + first;
    const double *restrict a = all->terms + first, *restrict b = a + all->clients, *restrict c = b + all->clients;
    const uint32_t *restrict word = words[0], *restrict next_word = words[1];
    const double inverse = 1.0 / now->rounds, next_inverse = 1.0 / (now->rounds + 1.0), coin = all->coin;
    const double signal = now->signals[0], next_signal = now->signals[1];
    int64_t came = 0, came_next = 0;
    for (int64_t i = 0; i < count; i++) {
        double scaled[3] = {2.0 * a[i], 4.0 * b[i], 6.0 * c[i]}, mine = passed[i];
        int64_t here = word[i] * 0x1p-32 < chance(scaled, mine, inverse, signal, coin);
        mine += here, came += here;
        if (two) {
            int64_t next = next_word[i] * 0x1p-32 < chance(scaled, mine, next_inverse, next_signal, coin);
            mine += next, came_next += next;
        }
        passed[i] = mine;
    }
    totals[0] += came, totals[1] += came_next;
}

#ifdef __AVX512F__
#include <immintrin.h>
const char *instructions(void) { return "AVX-512"; }

enum { CHAINS = 4 }; /* of Philox at once: one alone leaves the machine waiting for its multiplications */

static void fill_words(uint32_t *words, uint64_t block, int64_t blocks, uint32_t round, const uint32_t *key)
{
    const __m512i multiplier_0 = _mm512_set1_epi64(MULTIPLIER_0), multiplier_1 = _mm512_set1_epi64(MULTIPLIER_1);
    const __m512i lower = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i upper = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    for (int64_t n = 0; n < blocks; n += 8 * CHAINS) { /* may write up to PADDING words too many */
        __m512i c0[CHAINS], c1[CHAINS], c2[CHAINS], c3[CHAINS];
        for (int u = 0; u < CHAINS; u++) {
            c0[u] = _mm512_add_epi64(_mm512_set1_epi64(block + n + 8 * u), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
            c1[u] = _mm512_set1_epi64(round);
            c2[u] = _mm512_srli_epi64(c0[u], 32);
            c3[u] = _mm512_setzero_si512();
        }
        uint32_t k0 = key[0], k1 = key[1];
#pragma GCC unroll 10
        for (int mixed = 0; mixed < 10; mixed++, k0 += STEP_0, k1 += STEP_1)
#pragma GCC unroll 4
            for (int u = 0; u < CHAINS; u++) { /* of each 64-bit lane the lower half counts */
                __m512i first = _mm512_mul_epu32(c0[u], multiplier_0), second = _mm512_mul_epu32(c2[u], multiplier_1);
                c0[u] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(second, 32), c1[u], _mm512_set1_epi64(k0), 0x96);
                c2[u] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(first, 32), c3[u], _mm512_set1_epi64(k1), 0x96);
                c1[u] = second, c3[u] = first;
            }
#pragma GCC unroll 4
        for (int u = 0; u < CHAINS; u++) {
            __m512i left = _mm512_mask_shuffle_epi32(c0[u], 0xAAAA, c1[u], 0xA0);
            __m512i right = _mm512_mask_shuffle_epi32(c2[u], 0xAAAA, c3[u], 0xA0);
            _mm512_storeu_si512(words + 4 * (n + 8 * u), _mm512_permutex2var_epi64(left, lower, right));
            _mm512_storeu_si512(words + 4 * (n + 8 * u) + 16, _mm512_permutex2var_epi64(left, upper, right));
        }
    }
}

static inline __mmask8 tosses(const __m512d *scaled, __m512d passed, double inverse, double signal, double coin,
                              const uint32_t *words)
{
    const __m512d one = _mm512_set1_pd(1.0), zero = _mm512_setzero_pd(), low = _mm512_set1_pd(coin);
    __m512d x = _mm512_max_pd(passed * inverse, _mm512_set1_pd(0x1p-30)), square = x * x;
    __m512d slope = ((scaled[2] * square + scaled[1]) * square + scaled[0]) * x;
    __m512d intent = _mm512_min_pd(_mm512_max_pd(signal * x / slope, zero), one);
    __m512d probability = _mm512_min_pd(_mm512_max_pd(low + (1.0 - coin) * intent, low), one);
    __m512d uniform = _mm512_cvtepu32_pd(_mm256_loadu_si256((const void *)words)) * 0x1p-32;
    return _mm512_cmp_pd_mask(uniform, probability, _CMP_LT_OQ);
}

static void decisions(const crowd *all, int64_t first, int64_t count, const pass *now, uint32_t *const words[2],
                      int64_t *totals)
{
    double *passed = all->participations + first;
    const double *a = all->terms + first, *b = a + all->clients, *c = b + all->clients;
    const double inverse[2] = {1.0 / now->rounds, 1.0 / (now->rounds + 1.0)}, coin = all->coin;
    const int64_t whole = now->two ? count / 8 * 8 : 0;
    int64_t came = 0, came_next = 0;
    for (int64_t i = 0; i < whole; i += 8) {
        __m512d scaled[3] = {2.0 * _mm512_loadu_pd(a + i), 4.0 * _mm512_loadu_pd(b + i), 6.0 * _mm512_loadu_pd(c + i)};
        __m512d mine = _mm512_loadu_pd(passed + i), one = _mm512_set1_pd(1.0);
        __mmask8 here = tosses(scaled, mine, inverse[0], now->signals[0], coin, words[0] + i);
        mine = _mm512_mask_add_pd(mine, here, mine, one);
        __mmask8 next = tosses(scaled, mine, inverse[1], now->signals[1], coin, words[1] + i);
        _mm512_storeu_pd(passed + i, _mm512_mask_add_pd(mine, next, mine, one));
        came += __builtin_popcount(here), came_next += __builtin_popcount(next);
    }
    totals[0] += came, totals[1] += came_next;
    uint32_t *const rest[2] = {words[0] + whole, words[1] + whole};
    plain_decisions(all, first + whole, count - whole, now, rest, totals, now->two);
}
#else
const char *instructions(void) { return "as the compiler chooses"; }

static void fill_words(uint32_t *words, uint64_t block, int64_t blocks, uint32_t round, const uint32_t *key)
{
    for (int64_t n = 0; n < blocks; n++) {
        uint64_t index = block + n;
        uint32_t c0 = index, c1 = round, c2 = index >> 32, c3 = 0, k0 = key[0], k1 = key[1];
        for (int mixed = 0; mixed < 10; mixed++) {
            uint64_t first = (uint64_t)c0 * MULTIPLIER_0, second = (uint64_t)c2 * MULTIPLIER_1;
            c0 = (uint32_t)(second >> 32) ^ c1 ^ k0, c2 = (uint32_t)(first >> 32) ^ c3 ^ k1;
            c1 = second, c3 = first;
            k0 += STEP_0, k1 += STEP_1;
        }
        words[4 * n] = c0, words[4 * n + 1] = c1, words[4 * n + 2] = c2, words[4 * n + 3] = c3;
    }
}

static void decisions(const crowd *all, int64_t first, int64_t count, const pass *now, uint32_t *const words[2],
                      int64_t *totals)
{
    if (now->two)
        plain_decisions(all, first, count, now, words, totals, 1);
    else
        plain_decisions(all, first, count, now, words, totals, 0);
}
#endif

static void draw(const crowd *all, int64_t start, int64_t stop, const pass *now, int64_t *totals)
{
    uint32_t this_round[TILE + PADDING], next_round[TILE + PADDING];
    uint32_t *const words[2] = {this_round, next_round};
    int64_t found[2] = {0, 0};
    for (int64_t begin = start; begin < stop; begin += TILE) {
        int64_t count = stop - begin < TILE ? stop - begin : TILE;
        for (int next = 0; next <= now->two; next++)
            fill_words(words[next], begin / 4, (count + 3) / 4, now->round + next, all->key);
        decisions(all, begin, count, now, words, found);
    }
    totals[0] = found[0], totals[1] = found[1];
}

typedef struct {
    const crowd *all;
    int64_t first, stop, round, last;
    double rounds, gain, capacity, *signals;
    int64_t *participants;
    int me, threads;
    _Atomic int64_t *arrivals; /* eight apart: each on a cache line of its own */
    int64_t *parts;            /* two slots of two totals: a thread is at most one pass ahead */
} job;

static void meet(job *mine, int64_t number)
{
    atomic_store_explicit(&mine->arrivals[8 * mine->me], number, memory_order_release);
    for (int other = 0; other < mine->threads; other++)
        for (int spins = 0; atomic_load_explicit(&mine->arrivals[8 * other], memory_order_acquire) < number; spins++)
            if (spins > SPINS)
                sched_yield();
}

static void *work(void *given)
{
    job *mine = given;
    double older = mine->signals[mine->round ? mine->round - 1 : 0], newer = mine->signals[mine->round];
    int64_t round = mine->round, number = 0;
    while (round < mine->last) {
        pass now = {round, mine->rounds + (double)(round - mine->round), {older, newer}, round + 1 < mine->last};
        int64_t slot = 2 * (++number % 2);
        draw(mine->all, mine->first, mine->stop, &now, mine->parts + 8 * mine->me + slot);
        meet(mine, number);
        for (int next = 0; next <= now.two; next++, round++) {
            int64_t total = 0;
            for (int thread = 0; thread < mine->threads; thread++)
                total += mine->parts[8 * thread + slot + next];
            double moved = newer - mine->gain * ((double)total - mine->capacity);
            older = newer, newer = moved > 0.0 ? moved : 0.0;
            if (mine->me == 0)
                mine->participants[round] = total, mine->signals[round + 1] = newer;
        }
    }
    return NULL;
}

/* Rounds `round` to `last` of all clients, whose histories are `rounds` long; fills in signals and participants. */
void run(double *participations, const double *terms, int64_t clients, uint32_t key_0, uint32_t key_1, double coin,
         double rounds, int64_t round, int64_t last, double gain, double capacity, double *signals,
         int64_t *participants, int threads)
{
    crowd all = {participations, terms, clients, {key_0, key_1}, coin};
    _Atomic int64_t *arrivals = calloc(8 * threads, sizeof *arrivals);
    int64_t *parts = calloc(8 * threads, sizeof *parts);
    job jobs[threads];
    pthread_t others[threads];
    int64_t share = (clients + (int64_t)threads * TILE - 1) / ((int64_t)threads * TILE) * TILE;
    for (int thread = 0; thread < threads; thread++) {
        int64_t first = thread * share < clients ? thread * share : clients;
        int64_t stop = first + share < clients ? first + share : clients;
        jobs[thread] = (job){&all,    first,        stop,   round,   last,     rounds, gain, capacity,
                             signals, participants, thread, threads, arrivals, parts};
        if (thread)
            pthread_create(&others[thread], NULL, work, &jobs[thread]);
    }
    work(&jobs[0]);
    for (int thread = 1; thread < threads; thread++)
        pthread_join(others[thread], NULL);
    free(arrivals), free(parts);
}

typedef struct {
    char *to;
    const char *from;
    size_t bytes;
} part;

static void *copy_part(void *given)
{
    part *mine = given;
    memcpy(mine->to, mine->from, mine->bytes);
    return NULL;
}

/* What the memory can do: a plain copy, each thread its part. */
void copy(char *to, const char *from, int64_t bytes, int threads)
{
    part parts[threads + 1];
    memset(parts, 0, sizeof parts);
    pthread_t others[threads];
    int64_t share = bytes / threads;
    for (int thread = 0; thread < threads; thread++) {
        parts[thread] = (part){to + thread * share, from + thread * share, share};
        if (thread)
            pthread_create(&others[thread], NULL, copy_part, &parts[thread]);
    }
    copy_part(&parts[0]);
    for (int thread = 1; thread < threads; thread++)
        pthread_join(others[thread], NULL);
}
