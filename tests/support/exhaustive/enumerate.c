/* Every combination of some decisions, one after the other, by the evaluator that the caller brings.
 *
 * Decisions are left out where those that are made already take more bytes than each budget, or as long as the best plan
 * known there: `bytes` and `seconds` are what they take at least, whatever the others are.
 */
#include <stdint.h>

typedef int64_t (*Evaluate)(void *frame, int64_t limit, int64_t filled, int64_t host);

enum { KEEP = 0, RECOMPUTE = 2 }; /* of the evaluator, like these two answers */
enum { DONE = 0, OVER = 1 };

typedef struct {
    Evaluate evaluate;
    void *frame;
    uint8_t *fate, *pin_from; /* the frame's */
    const double *total;      /* the frame's */
    int64_t gaps, ops, budgets;
    const int32_t *gap, *options_at; /* of a decision: its gap; its options are [at[d], at[d + 1]) */
    const uint8_t *option_fate, *option_pin;
    const int32_t *lo, *hi; /* of a decision: the ops [lo, hi) beside which a tensor that is kept lies */
    const int64_t *size;    /* of a decision: the bytes of its tensor */
    const double *run;      /* of a decision: the seconds of the op that runs again */
    const int64_t *budget;  /* rising, without the persistent tensors */
    double *best;           /* of a budget: the seconds to be beaten */
    int64_t *bytes;         /* of an op */
    double *seconds;        /* of a depth */
    /* where it is */
    int32_t *option; /* of a decision */
    int64_t depth, left, evaluated; /* left: budgets not yet tried of the present combination */
} Search;

static void change(Search *s, int64_t d, int64_t by) {
    if (s->option_fate[s->option[d]] != KEEP) return;
    for (int32_t p = s->lo[d]; p < s->hi[d]; p++) s->bytes[p] += by * s->size[d];
}

/* Whether some budget has room for what is decided, and no plan as quick. */
static int hopeful(const Search *s, double seconds) {
    int64_t most = 0;
    for (int64_t p = 0; p < s->ops; p++)
        if (s->bytes[p] > most) most = s->bytes[p];
    for (int64_t k = s->budgets - 1; k >= 0 && s->budget[k] >= most; k--)
        if (seconds < s->best[k]) return 1;
    return 0;
}

static void back(Search *s) {
    if (--s->depth < 0) return;
    change(s, s->depth, -1);
    s->option[s->depth]++;
}

/* The next budget for which a combination is quicker than its best. The frame then has that answer. -1: there is none. */
int64_t next(Search *s) {
    while (s->depth >= 0) {
        const int64_t d = s->depth;
        if (d == s->gaps) {
            s->evaluated += s->left == s->budgets;
            while (s->left > 0) {
                const int64_t k = --s->left;
                if (s->seconds[d] >= s->best[k]) continue;
                const int64_t how = s->evaluate(s->frame, s->budget[k], s->budget[k], -1);
                if (how != DONE) break; /* it would not keep less either */
                if (*s->total < s->best[k]) return k;
            }
            back(s);
        } else if (s->option[d] == s->options_at[d + 1]) {
            s->option[d] = s->options_at[d];
            back(s);
        } else {
            const int32_t i = s->option[d];
            s->fate[s->gap[d]] = s->option_fate[i];
            s->pin_from[s->gap[d]] = s->option_pin[i];
            s->seconds[d + 1] = s->seconds[d] + (s->option_fate[i] == RECOMPUTE ? s->run[d] : 0);
            change(s, d, 1);
            s->depth++;
            s->left = s->budgets;
            if (!hopeful(s, s->seconds[d + 1])) back(s);
        }
    }
    return -1;
}
