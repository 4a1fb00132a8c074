/* The order, the live bytes and the seconds of a plan, from a fate for each gap and an algorithm for each op.
 *
 * A gap is the time between two neighbouring uses of a tensor by the program's ops. Before its first use and after its
 * last there is one, too. In a gap the tensor may remain (KEEP), leave for the host (OFFLOAD), or be dropped, so
 * that its op runs again (RECOMPUTE). A run again may need a tensor within a gap in which it is away. Then it comes
 * back early, by a copy or a run of its own. From need number `pin_from` of the gap on, it remains; before, it goes
 * once more.
 *
 * evaluate() does three things:
 *     order    every execution, with what runs again; the residencies of tensors; which of them share bytes
 *     windows  when a copy out has ended, so that its bytes are free; how early a copy back may begin
 *     clocks   the seconds of four streams, as memory/execution/simulator.py counts them
 *
 * Communications between ranks are ops of a stream of their own, and run once. Compute waits for one where it reads what
 * that brought, and before bytes that it used are written or free. An op whose persistent tensors it uses is told so.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { KEEP = 0, OFFLOAD = 1, RECOMPUTE = 2 };
enum { DONE = 0, OVER = 1, LOST = 2, TOO_LONG = 3, CROWDED = 4 };
enum { INPUT = 1, OUTPUT = 2, HOST_RESIDENT = 4 }; /* HOST_RESIDENT: its new value is written back */
enum { UNLIMITED = -1 };
/* Ends of an offload that brings nothing back: OUTPUT_COPY of an output, WRITE_BACK of a host-resident tensor. */
enum { NONE = -1, OUTPUT_COPY = -2, WRITE_BACK = -3 };

typedef struct {
    /* the program. Ops and tensors are numbers; persistent tensors have none */
    int64_t ops, tensors;
    const int32_t *reads_at, *reads, *writes_at, *writes; /* of an op: the tensors [at[op], at[op + 1]) */
    const int32_t *pairs_at, *pair_read, *pair_write;     /* of an op: which write may take which read's bytes */
    const int32_t *maker;                                 /* of a tensor: the op that may run again for it; NONE */
    const int32_t *gaps_at;                               /* of a tensor: its first gap */
    const uint8_t *flags;                                 /* of a tensor, as are `size` and the seconds of its copies */
    const uint8_t *renews;                                /* of an op's write: whether it reads that tensor, too */
    const int64_t *size;
    const int64_t *place; /* bytes that it takes on the host if it travels; 0: it has its place there anyway */
    const double *out_seconds, *in_seconds; /* of its copies */
    const double *out_drag, *in_drag;       /* of an op, with its algorithm: what a second of a copy takes of its work */
    const double *net_seconds;              /* of an op: those of a communication; negative for all others */
    const int32_t *awaits_at, *awaits; /* of an op: communications that it waits for because of persistent tensors */
    double net_drag, out_duplex, in_duplex; /* duplex: a copy's rate while one runs in the other direction */
    /* the decisions */
    const uint8_t *fate, *pin_from; /* of a gap */
    const double *seconds;          /* of an op, with its algorithm */
    const int64_t *workspace;
    /* the answer, and what there is room for */
    int64_t longest, most_residencies, most_offloads, most_idle;
    int32_t *order, *why; /* of an execution: its op; the gap for whose end it runs again, or NONE */
    int64_t *live;        /* bytes at an execution */
    double *finish;       /* seconds at its end */
    int32_t *residency_tensor, *residency_lo, *residency_hi, *residency_root; /* root: first of those that share */
    int32_t *shares_at, *shares_read, *shares_write; /* executions at which a write takes a read's bytes */
    int32_t *idle_gap, *idle_lo, *idle_hi;           /* executions [lo, hi): a tensor is kept and not used */
    int32_t *offload_tensor, *offload_gap, *offload_from, *offload_to; /* from, to: residencies, or NONE, or an end */
    int32_t *offload_after, *needed_at;                 /* its last use before, or NONE, and its first use behind */
    int32_t *offload_at, *free_at, *prefetch_at;        /* points, as in memory/plan.py; out NONE: the host has it */
    double *offload_end, *offload_wait, *prefetch_wait; /* seconds: the copy's end; how long compute waits for it */
    int64_t executions, residencies, offloads, shares, idles, worst; /* worst: the execution with most bytes */
    int64_t host;     /* bytes there of tensors that travel, if these are limited */
    uint8_t *travels; /* of a tensor: whether it does */
    double total, compute;
    /* scratch */
    int32_t *gap, *residency, *last, *wrote;  /* of a tensor: now */
    int32_t *transient, *transient_gap;       /* tensors that go again after the present op */
    int32_t *stack, *stack_next, *stack_why;  /* ops that are to run again, the last one first */
    int32_t *pair_from, *pair_to, *pair_when; /* residencies that may share */
    int32_t *by_out, *by_free, *by_last, *next_out, *next_free, *next_last, *heap; /* offloads, by an execution */
    uint8_t *present, *coming, *on_host, *needs;                                   /* of a tensor: now */
    uint8_t *residency_leaves, *taken; /* of a residency: it ends by an offload; its bytes are shared */
    int64_t *root_hi;
    double *begin;                                     /* of an execution, as `frees` finds it */
    double *out_start, *out_stop;                      /* copies out, as `frees` finds them */
    int32_t *out_queue, *in_queue;                     /* offloads, in the order of their copies */
    double *out_ready, *in_ready;                      /* the earliest moments at which these copies may begin */
    double *net_start, *net_stop;                      /* communications, in their order */
    double *net_end;                                   /* of an op */
    double *received, *touched;                        /* of a tensor: the end of what brought it; of what used it */
    int32_t *residency_net;                            /* of a residency: whether a communication used it */
    int32_t *by_net, *next_net;                        /* these, by the execution before which they are free */
} Frame;

/* ---- order: executions, residencies, offloads */

static int access_(Frame *f, int32_t t, int32_t e, int written, int fresh) {
    int32_t s = f->residency[t];
    if (fresh || f->coming[t]) {
        if (f->residencies == f->most_residencies || f->offloads == f->most_offloads) return TOO_LONG;
        const int32_t new_ = (int32_t)f->residencies++;
        if (!fresh) {
            const int64_t k = f->offloads++;
            f->offload_tensor[k] = t;
            f->offload_gap[k] = f->gap[t];
            f->offload_from[k] = s;
            f->offload_to[k] = new_;
            f->offload_after[k] = s == NONE ? NONE : f->last[t];
            f->needed_at[k] = e;
            f->offload_at[k] = f->on_host[t] ? NONE : f->wrote[t] + 1;
            f->on_host[t] = 1;
            if (s != NONE) f->residency_leaves[s] = 1;
        }
        f->coming[t] = 0;
        f->residency_tensor[new_] = t;
        f->residency_lo[new_] = e;
        f->residency_leaves[new_] = f->residency_net[new_] = 0;
        f->residency_root[new_] = new_;
        f->residency[t] = s = new_;
    } else if (s == NONE) {
        return LOST;
    } else if (e > f->last[t] + 1) {
        if (f->idles == f->most_idle) return TOO_LONG;
        f->idle_gap[f->idles] = f->gap[t];
        f->idle_lo[f->idles] = f->last[t] + 1;
        f->idle_hi[f->idles++] = e;
    }
    f->last[t] = e;
    f->residency_hi[s] = e + 1;
    if (f->net_seconds[f->order[e]] >= 0) f->residency_net[s] = 1;
    if (written) {
        f->wrote[t] = e;
        /* a run again makes the same bytes; an update does not */
        if (!fresh || f->flags[t] & HOST_RESIDENT) f->on_host[t] = 0;
    }
    return DONE;
}

static int emit(Frame *f, int32_t op, int32_t why) {
    if (f->executions == f->longest) return TOO_LONG;
    const int32_t e = (int32_t)f->executions++;
    f->order[e] = op;
    f->why[e] = why;
    for (int32_t i = f->reads_at[op]; i < f->reads_at[op + 1]; i++) {
        const int how = access_(f, f->reads[i], e, 0, 0);
        if (how) return how;
    }
    for (int32_t i = f->pairs_at[op]; i < f->pairs_at[op + 1]; i++) {
        if (f->shares == f->most_residencies) return TOO_LONG;
        f->pair_from[f->shares] = f->residency[f->pair_read[i]];
        f->pair_to[f->shares] = i; /* the write's residency is known below */
        f->pair_when[f->shares++] = e;
    }
    const int64_t first = f->shares - (f->pairs_at[op + 1] - f->pairs_at[op]);
    for (int32_t i = f->writes_at[op]; i < f->writes_at[op + 1]; i++) {
        const int how = access_(f, f->writes[i], e, 1, !f->renews[i]);
        if (how) return how;
    }
    for (int64_t k = first; k < f->shares; k++) f->pair_to[k] = f->residency[f->pair_write[f->pair_to[k]]];
    return DONE;
}

/* A run again needs t, or makes it besides: from need number `pin_from` on it remains until its next use. */
static void need(Frame *f, int32_t t, int32_t *transients) {
    const uint8_t number = f->needs[t];
    f->needs[t] = number < 255 ? number + 1 : 255;
    f->present[t] = 1;
    if (number < f->pin_from[f->gap[t]]) {
        f->transient[*transients] = t;
        f->transient_gap[(*transients)++] = f->gap[t];
    }
}

/* Bring t to the device: by a copy, or by its op and whatever that needs in turn. */
static int bring(Frame *f, int32_t t, int32_t *transients) {
    int32_t depth = 0;
    if (f->fate[f->gap[t]] == OFFLOAD) {
        f->coming[t] = 1;
        return DONE;
    }
    if (f->fate[f->gap[t]] != RECOMPUTE || f->maker[t] == NONE) return LOST;
    f->stack[0] = f->maker[t];
    f->stack_next[0] = f->reads_at[f->maker[t]];
    f->stack_why[0] = f->gap[t];
    while (depth >= 0) {
        const int32_t op = f->stack[depth];
        if (f->stack_next[depth] < f->reads_at[op + 1]) {
            const int32_t j = f->reads[f->stack_next[depth]++];
            if (f->present[j]) continue;
            need(f, j, transients);
            if (f->fate[f->gap[j]] == OFFLOAD) {
                f->coming[j] = 1;
            } else if (f->fate[f->gap[j]] != RECOMPUTE || f->maker[j] == NONE) {
                return LOST;
            } else {
                depth++;
                f->stack[depth] = f->maker[j];
                f->stack_next[depth] = f->reads_at[f->maker[j]];
                f->stack_why[depth] = f->gap[j];
            }
            continue;
        }
        const int how = emit(f, op, f->stack_why[depth]);
        if (how) return how;
        for (int32_t i = f->writes_at[op]; i < f->writes_at[op + 1]; i++) {
            const int32_t j = f->writes[i];
            if (!f->present[j]) need(f, j, transients);
        }
        depth--;
    }
    return DONE;
}

static int order(Frame *f) {
    f->executions = f->residencies = f->offloads = f->shares = f->idles = 0;
    for (int64_t t = 0; t < f->tensors; t++) {
        f->gap[t] = f->gaps_at[t];
        f->residency[t] = f->last[t] = f->wrote[t] = NONE;
        f->present[t] = f->coming[t] = f->needs[t] = 0;
        f->on_host[t] = (f->flags[t] & INPUT) != 0;
    }
    for (int32_t op = 0; op < f->ops; op++) {
        int32_t transients = 0;
        for (int32_t i = f->reads_at[op]; i < f->reads_at[op + 1]; i++) {
            const int32_t t = f->reads[i];
            if (f->present[t]) continue;
            f->present[t] = 1;
            const int how = bring(f, t, &transients);
            if (how) return how;
        }
        const int how = emit(f, op, NONE);
        if (how) return how;
        for (int half = 0; half < 2; half++) {
            const int32_t *at = half ? f->writes_at : f->reads_at, *which = half ? f->writes : f->reads;
            for (int32_t i = at[op]; i < at[op + 1]; i++) {
                const int32_t t = which[i];
                if (half && f->renews[i]) continue;
                const int32_t gap = ++f->gap[t];
                f->needs[t] = 0;
                f->present[t] = f->fate[gap] == KEEP;
            }
        }
        while (transients-- > 0)
            if (f->gap[f->transient[transients]] == f->transient_gap[transients])
                f->present[f->transient[transients]] = 0;
    }
    for (int32_t t = 0; t < f->tensors; t++) {
        const int writes_back = f->flags[t] & HOST_RESIDENT && !f->on_host[t];
        if (!(f->flags[t] & OUTPUT || writes_back) || f->wrote[t] == NONE) continue;
        if (f->offloads == f->most_offloads) return TOO_LONG;
        const int64_t k = f->offloads++;
        f->offload_tensor[k] = t;
        f->offload_gap[k] = f->gap[t];
        f->offload_from[k] = f->residency[t];
        f->offload_to[k] = writes_back ? WRITE_BACK : OUTPUT_COPY;
        f->offload_after[k] = writes_back ? f->last[t] : NONE; /* an output's bytes are kept until the step ends */
        if (writes_back) f->residency_leaves[f->residency[t]] = 1;
        f->needed_at[k] = (int32_t)f->executions;
        f->offload_at[k] = f->wrote[t] + 1;
    }
    return DONE;
}

/* ---- bytes: what shares, and the least live bytes, with absences as long as they can be */

static void curve(Frame *f) {
    const int32_t end = (int32_t)f->executions;
    for (int64_t t = 0; t < f->tensors; t++)
        if (f->flags[t] & OUTPUT && f->residency[t] != NONE) f->residency_hi[f->residency[t]] = end;
    for (int64_t s = 0; s < f->residencies; s++) {
        f->taken[s] = 0;
        f->root_hi[s] = f->residency_hi[s];
    }
    int64_t shared = 0;
    for (int64_t k = 0; k < f->shares; k++) {
        const int32_t from = f->pair_from[k], to = f->pair_to[k];
        const int32_t a = f->residency_tensor[from], b = f->residency_tensor[to];
        const int ends = f->residency_hi[from] == f->pair_when[k] + 1 && !f->residency_leaves[from];
        if (!ends || f->taken[from] || f->residency_root[to] != to || f->size[b] > f->size[a]) continue;
        f->taken[from] = 1;
        f->residency_root[to] = f->residency_root[from];
        if (f->residency_hi[to] > f->root_hi[f->residency_root[to]])
            f->root_hi[f->residency_root[to]] = f->residency_hi[to];
        f->shares_at[shared] = f->pair_when[k];
        f->shares_read[shared] = a;
        f->shares_write[shared++] = b;
    }
    f->shares = shared;
    memset(f->live, 0, (end + 1) * sizeof *f->live);
    for (int64_t s = 0; s < f->residencies; s++) {
        if (f->residency_root[s] != s) continue;
        f->live[f->residency_lo[s]] += f->size[f->residency_tensor[s]];
        f->live[f->root_hi[s]] -= f->size[f->residency_tensor[s]];
    }
    int64_t now = 0, most = NONE;
    for (int32_t e = 0; e < end; e++) {
        now += f->live[e];
        f->live[e] = now + f->workspace[f->order[e]];
        if (f->live[e] > most) {
            most = f->live[e];
            f->worst = e;
        }
    }
}

/* ---- the host: each tensor that travels has one place there for the whole step */

static void travelling(Frame *f) {
    memset(f->travels, 0, f->tensors);
    f->host = 0;
    for (int64_t k = 0; k < f->offloads; k++) {
        const int32_t t = f->offload_tensor[k];
        if (f->offload_to[k] == NONE || f->travels[t]) continue;
        f->travels[t] = 1;
        f->host += f->place[t];
    }
}

/* ---- windows */

static int64_t bytes_of(const Frame *f, int64_t offload) {
    const int32_t from = f->offload_from[offload];
    return from == NONE ? 0 : f->size[f->residency_tensor[f->residency_root[from]]];
}

/* Insert an offload into the list of an execution, in the order of tensors, as the lowering issues them. */
static void insert(int32_t *head, int32_t *next, const int32_t *tensor, int32_t offload) {
    while (*head != NONE && tensor[*head] < tensor[offload]) head = &next[*head];
    next[offload] = *head;
    *head = offload;
}

static void push(const double *key, int32_t *heap, int64_t *count, int32_t x) {
    int64_t i = (*count)++;
    while (i && key[heap[(i - 1) / 2]] > key[x]) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = x;
}

static int32_t pop(const double *key, int32_t *heap, int64_t *count) {
    const int32_t top = heap[0], x = heap[--*count];
    int64_t i = 0, k;
    while ((k = 2 * i + 1) < *count) {
        if (k + 1 < *count && key[heap[k + 1]] < key[heap[k]]) k++;
        if (key[heap[k]] >= key[x]) break;
        heap[i] = heap[k];
        i = k;
    }
    heap[i] = x;
    return top;
}

static double later(double a, double b) { return a > b ? a : b; }

/* Copies out, as `frees` finds them, beside ops; `drag`: what a second of one takes from the present op's work. */
typedef struct {
    const double *start, *stop;
    double drag;
    int64_t count, next; /* next: the first that has not ended */
} Concurrent;

static const double MOST_DRAG = 0.95; /* as in costs/costs.py */

/* The moment at which an op ends that begins `now` and takes `work` seconds alone. */
static double slowed(double now, double work, Concurrent *b) {
    if (b->drag == 0) return now + work;
    for (;;) {
        double rate = 1, change = HUGE_VAL;
        while (b->next < b->count && b->stop[b->next] <= now) b->next++;
        if (b->next < b->count) {
            const int active = b->start[b->next] <= now;
            if (active) rate -= b->drag;
            change = active ? b->stop[b->next] : b->start[b->next];
        }
        if (now + work / rate <= change) return now + work / rate;
        work -= (change - now) * rate;
        now = change;
    }
}

/* Keep the tensor. If it was to be copied out for the first time, the next offload copies it out instead. */
static void give_up(Frame *f, int64_t offload) {
    const int32_t to = f->offload_to[offload];
    f->offload_to[offload] = NONE;
    for (int32_t k = (int32_t)offload + 1; k < f->offloads; k++) {
        if (f->offload_tensor[k] != f->offload_tensor[offload]) continue;
        if (f->offload_at[k] != NONE) return;
        if (f->offload_from[k] == to) { /* the copy is on its way */
            f->offload_at[k] = f->offload_at[offload];
            f->offload_end[k] = f->offload_end[offload];
        } else { /* a run made the tensor again since then */
            f->offload_at[k] = f->residency_lo[f->offload_from[k]] + 1;
            insert(&f->by_out[f->offload_at[k] - 1], f->next_out, f->offload_tensor, k);
        }
        return;
    }
}

/* When bytes are free: once their copy out has ended, as slow as beside copies back. Compute waits for one only where it needs the bytes. An
 * offload whose copy has not ended when the tensor is used again is given up: then offload_to is NONE, and
 * the tensor is kept. */
static void frees(Frame *f, int64_t limit) {
    const int32_t end = (int32_t)f->executions;
    double clock = 0, link = 0;
    int64_t extra = 0, waiting = 0, coming = 0;
    Concurrent out = {f->out_start, f->out_stop, 0, 0, 0};
    memset(f->by_out, 0xff, (end + 1) * sizeof *f->by_out);
    memset(f->by_last, 0xff, (end + 1) * sizeof *f->by_last);
    for (int32_t k = (int32_t)f->offloads - 1; k >= 0; k--) { /* they mostly rise with tensors: each is the new head */
        f->free_at[k] = NONE;
        f->offload_end[k] = 0;
        if (f->offload_at[k] != NONE) insert(&f->by_out[f->offload_at[k] - 1], f->next_out, f->offload_tensor, k);
        if (f->offload_after[k] != NONE) insert(&f->by_last[f->offload_after[k]], f->next_last, f->offload_tensor, k);
    }
    for (int32_t e = 0; e < end; e++) {
        for (int32_t k = e ? f->by_last[e - 1] : NONE; k != NONE; k = f->next_last[k]) {
            if (f->offload_at[k] == NONE) {
                f->free_at[k] = e;
            } else {
                extra += bytes_of(f, k);
                push(f->offload_end, f->heap, &waiting, k);
            }
        }
        while (waiting && f->offload_end[f->heap[0]] <= clock) {
            const int32_t k = pop(f->offload_end, f->heap, &waiting);
            if (f->free_at[k] != NONE || f->offload_to[k] == NONE) continue;
            f->free_at[k] = e;
            extra -= bytes_of(f, k);
        }
        for (; coming < f->offloads && f->needed_at[coming] == e; coming++) {
            if (f->offload_after[coming] == NONE || f->free_at[coming] != NONE) continue;
            extra -= bytes_of(f, coming);
            give_up(f, coming);
        }
        while (f->live[e] + extra > limit && waiting) {
            const int32_t k = pop(f->offload_end, f->heap, &waiting);
            if (f->free_at[k] != NONE || f->offload_to[k] == NONE) continue;
            f->free_at[k] = e;
            extra -= bytes_of(f, k);
            clock = later(clock, f->offload_end[k]);
        }
        const int32_t op = f->order[e];
        f->begin[e] = clock;
        out.drag = f->out_drag[op];
        f->finish[e] = clock = slowed(clock, f->seconds[op], &out);
        for (int32_t k = f->by_out[e]; k != NONE; k = f->next_out[k]) {
            f->out_start[out.count] = later(link, clock);
            link = f->out_start[out.count] + f->out_seconds[f->offload_tensor[k]] / f->out_duplex;
            f->offload_end[k] = f->out_stop[out.count++] = link;
        }
    }
    for (int64_t k = 0; k < f->offloads; k++)
        if (f->offload_to[k] == WRITE_BACK && f->free_at[k] == NONE) f->free_at[k] = end;
}

/* When copies back begin: so late that each ends when it is needed, one after another, as slow as beside copies out;
 * later where bytes lack. */
static void backs(Frame *f, int64_t limit) {
    double link = 1e300;
    for (int64_t k = 0; k < f->offloads; k++) { /* bytes that leave are there until they are free */
        if (f->offload_after[k] == NONE) continue;
        const int32_t until = f->offload_to[k] == NONE ? f->needed_at[k] : f->free_at[k];
        for (int32_t e = f->offload_after[k] + 1; e < until; e++) f->live[e] += bytes_of(f, k);
    }
    for (int64_t k = f->offloads - 1; k >= 0; k--) {
        const int32_t use = f->needed_at[k], tensor = f->offload_tensor[k];
        if (f->offload_to[k] < 0) continue;
        link = (f->begin[use] < link ? f->begin[use] : link) - f->in_seconds[tensor] / f->in_duplex;
        int32_t lo = f->offload_after[k] == NONE ? 0 : f->free_at[k], hi = use; /* lo: early enough */
        while (lo < hi) {
            const int32_t middle = (lo + hi + 1) / 2;
            if (middle == 0 || f->finish[middle - 1] <= link) lo = middle;
            else hi = middle - 1;
        }
        int32_t point = use;
        while (point > lo && f->live[point - 1] + f->size[tensor] <= limit) f->live[--point] += f->size[tensor];
        f->prefetch_at[k] = point;
    }
    int32_t point = 0;
    for (int64_t k = 0; k < f->offloads; k++) {
        if (f->offload_to[k] < 0) continue;
        while (f->prefetch_at[k] < point) f->live[f->prefetch_at[k]++] -= f->size[f->offload_tensor[k]];
        point = f->prefetch_at[k];
    }
}

/* ---- clocks */

/* Sort the residencies that communications used by the execution before which their bytes are free: compute waits
 * there. */
static void used(Frame *f) {
    memset(f->by_net, 0xff, (f->executions + 1) * sizeof *f->by_net);
    for (int32_t s = 0; s < f->residencies; s++) {
        if (!f->residency_net[s]) continue;
        int32_t residency = s, point = NONE;
        for (int32_t k = 0; f->residency_leaves[residency] && k < f->offloads; k++) {
            if (f->offload_from[k] != residency) continue;
            if (f->offload_to[k] == NONE) { /* given up: the tensor's next residency is the same one */
                do residency++;
                while (f->residency_tensor[residency] != f->residency_tensor[s]);
            } else {
                point = f->offload_to[k] == OUTPUT_COPY ? (int32_t)f->executions : f->free_at[k];
                break;
            }
        }
        if (point == NONE) point = (int32_t)f->root_hi[f->residency_root[residency]];
        f->next_net[s] = f->by_net[point];
        f->by_net[point] = s;
    }
}

/* Work under way: at the moment `since`, `left` seconds of it were left. It ends at `end`, as long as its rate stays. */
typedef struct {
    double since, left, rate, end;
} Work;

static Work begun(double now, double seconds) { return (Work){now, seconds, 1, now + seconds}; }

static void pace(Work *w, double now, double rate) {
    if (rate == w->rate) return;
    w->left = later(w->left - (now - w->since) * w->rate, 0);
    w->since = now;
    w->rate = rate;
    w->end = now + w->left / rate;
}

/* The copies in one direction, which run one after another. */
typedef struct {
    int32_t *queue;
    double *ready;
    int64_t count, next; /* next: the first that has not ended */
    int runs;            /* whether it is under way */
    Work work;
    double last; /* the end of the last one */
} Way;

/* A moment of the step. Compute and both ways of the link get there together, since each may slow the others down. */
typedef struct {
    Frame *f;
    double now;
    Way out, in;
    int64_t nets, net; /* communications that have begun or will; the first of them that has not ended */
} Moment;

static void queue(Way *way, int32_t offload, double ready) {
    way->queue[way->count] = offload;
    way->ready[way->count++] = ready;
}

/* Begin the copies that wait for nothing. A copy back waits for its own copy out. */
static void begin_copies(Moment *m) {
    Frame *f = m->f;
    Way *out = &m->out, *in = &m->in;
    if (!out->runs && out->next < out->count && out->ready[out->next] <= m->now) {
        out->work = begun(m->now, f->out_seconds[f->offload_tensor[out->queue[out->next]]]);
        out->runs = 1;
    }
    if (!in->runs && in->next < in->count && in->ready[in->next] <= m->now) {
        const int32_t k = in->queue[in->next];
        if (f->offload_at[k] == NONE || f->offload_end[k] <= m->now) {
            in->work = begun(m->now, f->in_seconds[f->offload_tensor[k]]);
            in->runs = 1;
        }
    }
    if (out->runs) pace(&out->work, m->now, in->runs ? f->out_duplex : 1);
    if (in->runs) pace(&in->work, m->now, out->runs ? f->in_duplex : 1);
}

/* The next moment, at most `until`, at which a copy ends or may begin. */
static double next_change(const Way *way, double now, double until) {
    if (way->runs) return way->work.end < until ? way->work.end : until;
    if (way->next == way->count || way->ready[way->next] <= now) return until;
    return way->ready[way->next] < until ? way->ready[way->next] : until;
}

/* Go on to the next change of the copies, at most to `until`. */
static void go_on(Moment *m, double until) {
    m->now = next_change(&m->in, m->now, next_change(&m->out, m->now, until));
    if (m->out.runs && m->out.work.end <= m->now) {
        m->f->offload_end[m->out.queue[m->out.next++]] = m->out.last = m->now;
        m->out.runs = 0;
    }
    if (m->in.runs && m->in.work.end <= m->now) {
        m->in.last = m->now;
        m->in.next++;
        m->in.runs = 0;
    }
    begin_copies(m);
}

static void wait_until(Moment *m, double moment) {
    while (m->now < moment) go_on(m, moment);
}

/* Run an op that takes so many seconds alone (simulator.py does the same). */
static void run(Moment *m, double seconds, double out_drag, double in_drag) {
    const Frame *f = m->f;
    Work w = begun(m->now, seconds);
    do {
        double rate = 1, change = HUGE_VAL;
        if (m->out.runs) rate -= out_drag * m->out.work.rate;
        if (m->in.runs) rate -= in_drag * m->in.work.rate;
        while (m->net < m->nets && f->net_stop[m->net] <= m->now) m->net++;
        if (m->net < m->nets) {
            const int active = f->net_start[m->net] <= m->now;
            if (active) rate -= f->net_drag;
            change = active ? f->net_stop[m->net] : f->net_start[m->net];
        }
        pace(&w, m->now, later(rate, 1 - MOST_DRAG));
        go_on(m, w.end < change ? w.end : change);
    } while (m->now < w.end);
}

static void clocks(Frame *f) {
    const int32_t end = (int32_t)f->executions;
    double net = 0, compute = 0;
    double last = 0, freed = 0; /* the end of the last op; of the copies and communications whose bytes were freed */
    int64_t back = 0, arrive = 0, arrived = 0, shared = 0;
    Moment m = {f, 0, {f->out_queue, f->out_ready, 0, 0, 0, {0}, 0}, {f->in_queue, f->in_ready, 0, 0, 0, {0}, 0}, 0, 0};
    memset(f->by_out, 0xff, (end + 1) * sizeof *f->by_out);
    memset(f->by_free, 0xff, (end + 1) * sizeof *f->by_free);
    memset(f->received, 0, f->tensors * sizeof *f->received);
    memset(f->touched, 0, f->tensors * sizeof *f->touched);
    used(f);
    for (int32_t k = (int32_t)f->offloads - 1; k >= 0; k--) { /* as in frees */
        f->prefetch_wait[k] = f->offload_wait[k] = 0;
        f->offload_end[k] = HUGE_VAL;
        if (f->offload_to[k] == NONE) continue;
        if (f->offload_at[k] != NONE) insert(&f->by_out[f->offload_at[k] - 1], f->next_out, f->offload_tensor, k);
        if (f->offload_after[k] != NONE) insert(&f->by_free[f->free_at[k]], f->next_free, f->offload_tensor, k);
    }
    for (int32_t e = 0; e < end; e++) {
        const int32_t op = f->order[e];
        const int on_net = f->net_seconds[op] >= 0;
        double came = 0; /* what this execution reads */
        for (int32_t k = f->by_free[e]; k != NONE; k = f->next_free[k]) {
            if (f->offload_at[k] == NONE) continue;
            const double before = m.now;
            while (f->offload_end[k] > m.now) go_on(&m, HUGE_VAL);
            freed = later(freed, f->offload_end[k]);
            f->offload_wait[k] = m.now - before;
        }
        for (int32_t s = f->by_net[e]; s != NONE; s = f->next_net[s]) {
            freed = later(freed, f->touched[f->residency_tensor[s]]);
            wait_until(&m, f->touched[f->residency_tensor[s]]);
        }
        for (; back < f->offloads; back++) {
            if (f->offload_to[back] < 0) continue;
            if (f->prefetch_at[back] != e) break;
            queue(&m.in, (int32_t)back, later(last, freed));
        }
        begin_copies(&m);
        for (; arrive < back && f->needed_at[arrive] <= e; arrive++) {
            if (f->offload_to[arrive] < 0) continue;
            const double before = m.now;
            while (m.in.next == arrived && m.now < HUGE_VAL) go_on(&m, HUGE_VAL);
            arrived++;
            f->prefetch_wait[arrive] = m.now - before;
            came = m.now;
        }
        if (on_net) {
            net = later(later(net, last), later(freed, came));
            f->net_start[m.nets] = net;
            f->net_end[op] = f->net_stop[m.nets++] = net += f->net_seconds[op];
            for (int32_t i = f->reads_at[op]; i < f->reads_at[op + 1]; i++) f->touched[f->reads[i]] = net;
            for (int32_t i = f->writes_at[op]; i < f->writes_at[op + 1]; i++)
                f->touched[f->writes[i]] = f->received[f->writes[i]] = net;
            f->finish[e] = m.now;
        } else {
            for (int32_t i = f->awaits_at[op]; i < f->awaits_at[op + 1]; i++) wait_until(&m, f->net_end[f->awaits[i]]);
            for (int32_t i = f->reads_at[op]; i < f->reads_at[op + 1]; i++) wait_until(&m, f->received[f->reads[i]]);
            for (int32_t i = f->writes_at[op]; i < f->writes_at[op + 1]; i++) wait_until(&m, f->touched[f->writes[i]]);
            for (; shared < f->shares && f->shares_at[shared] == e; shared++)
                wait_until(&m, f->touched[f->shares_read[shared]]);
            compute += f->seconds[op];
            run(&m, f->seconds[op], f->out_drag[op], f->in_drag[op]);
            f->finish[e] = last = m.now;
        }
        for (int32_t k = f->by_out[e]; k != NONE; k = f->next_out[k]) queue(&m.out, k, on_net ? net : m.now);
        begin_copies(&m);
    }
    const double clock = m.now;
    while (m.out.next < m.out.count || m.in.next < m.in.count) go_on(&m, HUGE_VAL);
    f->compute = compute;
    f->total = later(later(clock, net), later(m.out.last, m.in.last));
}

/* Fill in the answer for decisions under which the live bytes are to be within `limit`.
 *
 * filled: bytes up to which tensors leave later, and come back earlier, than they must
 * host:   bytes of the host that tensors which travel may take; UNLIMITED: any number
 *
 * DONE: they do. OVER: they do not, not even with all absences as long as they can be; `live` and `worst` tell where.
 * CROWDED: the live bytes do, and those of the host do not. LOST: an op reads a tensor that is not
 * there. TOO_LONG: the answer has no room. */
int64_t evaluate(Frame *f, int64_t limit, int64_t filled, int64_t host) {
    const int how = order(f);
    if (how) return how;
    curve(f);
    if (host != UNLIMITED) travelling(f);
    if (f->live[f->worst] > limit) return OVER;
    frees(f, filled);
    if (host != UNLIMITED) {
        travelling(f); /* without what was given up */
        if (f->host > host) return CROWDED;
    }
    backs(f, filled);
    clocks(f);
    return DONE;
}
