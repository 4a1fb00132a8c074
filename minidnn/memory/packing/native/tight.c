/* A search for offsets at which buffers with known lives fit into a capacity, by backtracking over canonical solutions
 * (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023).
 *
 * A step places one buffer at the least offset that those placed below it leave. In a canonical solution offsets never
 * fall from step to step. So a buffer that is not placed yet lies no lower than the last one, and its least offset only
 * rises. Branches are cut off where
 *     section inference   the floor of some section and its buffers that are not placed are higher than the capacity
 *     dominance           a buffer that is not placed would fit below this one
 *     no hat              nothing lies above this buffer, so another place for it changes nothing
 *     twins               an equal buffer has failed here
 *     time slices         where no life that is not placed crosses a moment, both sides are searched apart
 * A section is a largest set of buffers that are alive together.
 *
 * The orders in which buffers are tried take turns with ever more steps, since each order alone fails on some problems.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { IMPOSSIBLE = 0, FOUND = 1, GAVE_UP = 2, NO_MEMORY = 3 };
enum { PLACED_NOT = -1 };

typedef struct {
    int64_t count, capacity, steps; /* steps: that may still be tried in this round */
    int64_t *work;                  /* buffers and sections that may still be looked at */
    const int64_t *size;
    int64_t *where;                 /* offsets; PLACED_NOT */
    int64_t *least;                 /* the least offset that is left for a buffer that is not placed */
    int64_t *width;                 /* of lives, as the current order counts them */
    int64_t *worst;                 /* the largest total of a buffer's sections, for orders */
    int32_t *first, *last;          /* a buffer's sections [first, last) */
    int32_t *twin;                  /* the first buffer with the same sections and size */
    int64_t *failed_at, *failed_to; /* of a twin: the visit in which it failed last, and its offset there */
    int64_t visits;
    int32_t sections;
    int32_t *members_at, *members;  /* the buffers of each section */
    int64_t *floor, *total;         /* of a section: its floor, and the sizes that are not placed */
    int32_t *crossing;              /* how many buffers that are not placed cross the end of a section */
    int32_t *touched, touch;        /* sections that the current step has changed have touched == touch */
    int32_t *placed, depth;         /* buffers in the order of their steps */
    struct { int64_t *at, was; } *trail; /* changes of `least` and `floor`, to be undone */
    int64_t trailed, trail_room;
    const char *order;
    int failed; /* whether memory ran out */
} Search;

/* ---- changes that can be undone */

static void change(Search *s, int64_t *at, int64_t value) {
    if (s->trailed == s->trail_room) {
        const int64_t room = 2 * s->trail_room + 4096;
        void *more = realloc(s->trail, room * sizeof *s->trail);
        if (!more) {
            s->failed = 1;
            return;
        }
        s->trail = more;
        s->trail_room = room;
    }
    s->trail[s->trailed].at = at;
    s->trail[s->trailed++].was = *at;
    *at = value;
}

static void undo(Search *s, int64_t trailed, int32_t depth) {
    while (s->trailed > trailed) {
        s->trailed--;
        *s->trail[s->trailed].at = s->trail[s->trailed].was;
    }
    while (s->depth > depth) {
        const int32_t b = s->placed[--s->depth];
        for (int32_t k = s->first[b]; k < s->last[b]; k++) {
            s->total[k] += s->size[b];
            s->crossing[k] += k + 1 < s->last[b];
        }
        s->where[b] = PLACED_NOT;
    }
}

/* ---- a step */

/* Raises the floor of a section to the least offset of its buffers, and says whether they can still fit. */
static int fits(Search *s, int32_t k) {
    int64_t least = INT64_MAX;
    *s->work -= s->members_at[k + 1] - s->members_at[k];
    for (int32_t i = s->members_at[k]; i < s->members_at[k + 1]; i++) {
        const int32_t b = s->members[i];
        if (s->where[b] == PLACED_NOT && s->least[b] < least) least = s->least[b];
    }
    if (least == INT64_MAX) return 1;
    if (least > s->floor[k]) change(s, &s->floor[k], least);
    return s->floor[k] + s->total[k] <= s->capacity;
}

/* Places a buffer at its least offset. Returns whether the buffers of the sections [lo, hi) can still fit; `*hat`:
 * whether any buffer of `part` lies above it. */
static int place(Search *s, const int32_t *part, int32_t count, int32_t lo, int32_t hi, int32_t b, int *hat) {
    const int64_t at = s->least[b], top = at + s->size[b];
    s->where[b] = at;
    s->placed[s->depth++] = b;
    s->touch++;
    *s->work -= count + s->last[b] - s->first[b];
    for (int32_t k = s->first[b]; k < s->last[b]; k++) {
        change(s, &s->floor[k], top);
        s->total[k] -= s->size[b];
        s->crossing[k] -= k + 1 < s->last[b];
        s->touched[k] = s->touch;
    }
    int good = 1;
    int64_t highest = at; /* of the least offsets: no section's floor rises above it */
    *hat = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t o = part[i];
        if (s->where[o] != PLACED_NOT) continue;
        if (s->first[o] < s->last[b] && s->first[b] < s->last[o]) {
            *hat = 1;
            if (s->least[o] < top) {
                change(s, &s->least[o], top);
                good &= top + s->size[o] <= s->capacity;
                *s->work -= s->last[o] - s->first[o];
                for (int32_t k = s->first[o]; k < s->last[o]; k++) s->touched[k] = s->touch;
            }
        }
        if (s->least[o] > highest) highest = s->least[o];
    }
    *s->work -= hi - lo;
    for (int32_t k = lo; good && k < hi; k++) {
        const int64_t floor = s->floor[k] > at ? s->floor[k] : at;
        good = floor + s->total[k] <= s->capacity;
        if (good && s->touched[k] == s->touch && highest + s->total[k] > s->capacity) good = fits(s, k);
    }
    return good;
}

/* ---- orders */

static int64_t key(const Search *s, char letter, int32_t b) {
    return letter == 'W' ? s->width[b] : letter == 'A' ? s->width[b] * s->size[b] : s->worst[b];
}

static int before(const Search *s, int32_t a, int32_t b) {
    for (const char *letter = s->order; *letter; letter++) {
        const int64_t mine = key(s, *letter, a), theirs = key(s, *letter, b);
        if (mine != theirs) return mine > theirs;
    }
    return a < b;
}

static void merge_sort(const Search *s, int32_t *part, int32_t *spare, int32_t count) {
    if (count < 2) return;
    const int32_t half = count / 2;
    merge_sort(s, part, spare, half);
    merge_sort(s, part + half, spare, count - half);
    memcpy(spare, part, half * sizeof *part);
    for (int32_t i = 0, j = half, k = 0; i < half; k++)
        part[k] = j < count && before(s, part[j], spare[i]) ? part[j++] : spare[i++];
}

/* Sorts a part of the buffers by the current order; `spare` has room for half of them. */
static void sort(Search *s, int32_t *part, int32_t *spare, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t b = part[i];
        s->worst[b] = 0;
        for (int32_t k = s->first[b]; k < s->last[b]; k++)
            if (s->total[k] > s->worst[b]) s->worst[b] = s->total[k];
    }
    merge_sort(s, part, spare, count);
}

/* ---- the search */

typedef struct { int64_t at; int32_t rank; } Candidate;

static int search(Search *s, const int32_t *part, int32_t count, int32_t lo, int32_t hi, Candidate last);

/* Searches each slice of the sections [lo, hi) that nothing crosses, where buffer b was placed last. */
static int slices(Search *s, const int32_t *part, int32_t count, int32_t lo, int32_t hi, int32_t b, Candidate last) {
    int32_t cut = s->first[b];
    while (cut + 1 < s->last[b] && s->crossing[cut]) cut++;
    if (cut + 1 >= s->last[b]) return search(s, part, count, lo, hi, last);
    int32_t *slice = malloc(2 * (count + 1) * sizeof *slice);
    if (!slice) return NO_MEMORY;
    int found = FOUND;
    for (int32_t from = lo; found == FOUND && from < hi;) {
        int32_t to = from + 1;
        while (to < hi && s->crossing[to - 1]) to++;
        int32_t n = 0;
        for (int32_t i = 0; i < count; i++) {
            const int32_t o = part[i];
            if (s->where[o] == PLACED_NOT && s->first[o] >= from && s->last[o] <= to) slice[n++] = o;
        }
        sort(s, slice, slice + n, n);
        found = search(s, slice, n, from, to, (Candidate){0, 0});
        from = to;
    }
    free(slice);
    return found;
}

/* Places what is left of `part`, whose lives lie within the sections [lo, hi). `last`: the step before. */
static int search(Search *s, const int32_t *part, int32_t count, int32_t lo, int32_t hi, Candidate last) {
    int64_t lowest_top = INT64_MAX;
    for (int32_t i = 0; i < count; i++) {
        const int32_t b = part[i];
        if (s->where[b] == PLACED_NOT && s->least[b] + s->size[b] < lowest_top) lowest_top = s->least[b] + s->size[b];
    }
    if (lowest_top == INT64_MAX) return FOUND;
    Candidate *candidates = malloc(count * sizeof *candidates);
    if (!candidates) return NO_MEMORY;
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t at = s->least[part[i]];
        if (s->where[part[i]] != PLACED_NOT || at >= lowest_top || at < last.at || (at == last.at && i < last.rank))
            continue;
        int32_t j = n++;
        for (; j && candidates[j - 1].at > at; j--) candidates[j] = candidates[j - 1];
        candidates[j] = (Candidate){at, i};
    }
    int result = IMPOSSIBLE;
    const int64_t visit = ++s->visits;
    for (int32_t i = 0; i < n; i++) {
        const int32_t b = part[candidates[i].rank], depth = s->depth;
        const int64_t trailed = s->trailed;
        if (s->failed_at[s->twin[b]] == visit && s->failed_to[s->twin[b]] == candidates[i].at) continue;
        if (s->steps-- <= 0 || *s->work < 0) {
            result = GAVE_UP;
            break;
        }
        int hat, found = IMPOSSIBLE;
        if (place(s, part, count, lo, hi, b, &hat)) found = slices(s, part, count, lo, hi, b, candidates[i]);
        if (s->failed) found = NO_MEMORY;
        if (found == FOUND) {
            result = FOUND;
            break;
        }
        undo(s, trailed, depth);
        if (found != IMPOSSIBLE) {
            result = found;
            break;
        }
        if (!hat) break;
        s->failed_at[s->twin[b]] = visit, s->failed_to[s->twin[b]] = candidates[i].at;
    }
    free(candidates);
    return result;
}

/* ---- the problem */

/* Numbers the sections: a new one begins with the first life that starts after another has ended. */
static void number_sections(Search *s, const int64_t *lo, const int64_t *hi, int64_t times, int32_t *at, char *marks) {
    enum { STARTS = 1, ENDS = 2 };
    for (int64_t b = 0; b < s->count; b++) marks[lo[b]] |= STARTS, marks[hi[b]] |= ENDS;
    int32_t number = -1;
    for (int64_t t = 0, ended = 1; t < times; t++) {
        ended |= (marks[t] & ENDS) != 0;
        if (marks[t] & STARTS && ended) number++, ended = 0;
        at[t] = number;
    }
    for (int64_t b = 0; b < s->count; b++) s->first[b] = at[lo[b]], s->last[b] = at[hi[b] - 1] + 1;
    s->sections = number + 1;
}

static void find_twins(Search *s) {
    for (int32_t b = 0; b < s->count; b++) {
        int32_t a = 0;
        while (s->first[a] != s->first[b] || s->last[a] != s->last[b] || s->size[a] != s->size[b]) a++;
        s->twin[b] = a;
    }
}

/* Nothing is placed. */
static void reset(Search *s) {
    s->trailed = s->depth = 0;
    for (int64_t b = 0; b < s->count; b++) s->where[b] = PLACED_NOT, s->least[b] = 0;
    for (int32_t k = 0; k < s->sections; k++) s->floor[k] = s->total[k] = s->crossing[k] = 0;
    for (int64_t b = 0; b < s->count; b++)
        for (int32_t k = s->first[b]; k < s->last[b]; k++) {
            s->total[k] += s->size[b];
            s->crossing[k] += k + 1 < s->last[b];
        }
}

/* One round: the whole problem in one order. */
static int round_of(Search *s, int32_t *all) {
    reset(s);
    for (int32_t k = 0; k < s->sections; k++)
        if (s->total[k] > s->capacity) return IMPOSSIBLE;
    int found = FOUND;
    for (int32_t from = 0; found == FOUND && from < s->sections;) {
        int32_t to = from + 1, n = 0;
        while (to < s->sections && s->crossing[to - 1]) to++;
        for (int32_t b = 0; b < s->count; b++)
            if (s->first[b] >= from && s->last[b] <= to) all[n++] = b;
        sort(s, all, all + n, n);
        found = search(s, all, n, from, to, (Candidate){0, 0});
        from = to;
    }
    return found;
}

static int rounds(Search *s, const int64_t *width, int64_t steps, int32_t *all) {
    /* W: the width of lives, in time or in sections; A: width times size; T: the largest total of the sections */
    static const struct { const char *order; int in_time; } ways[] = {
        {"WAT", 1}, {"AT", 1}, {"TAW", 1}, {"TWA", 1}, {"WAT", 0}, {"TAW", 0}, {"TWA", 0},
    };
    const int count = sizeof ways / sizeof *ways;
    for (int64_t limit = 2 * s->count; steps > 0 && *s->work >= 0; limit *= 2)
        for (int i = 0; i < count && steps > 0 && *s->work >= 0; i++) {
            for (int64_t b = 0; b < s->count; b++) s->width[b] = ways[i].in_time ? width[b] : s->last[b] - s->first[b];
            s->order = ways[i].order;
            const int64_t given = s->steps = limit < steps ? limit : steps;
            const int found = round_of(s, all);
            if (found != GAVE_UP) return found;
            steps -= given;
        }
    return GAVE_UP;
}

/* Offsets of `count` buffers of size[b] bytes over [lo[b], hi[b]) that end at or below `capacity`; count > 0, and times
 * are numbers up to `times`. `width`: the lengths of lives, for orders. Tries at most `steps` steps, which together look at
 * at most `*work` buffers and sections; what is left of that stays in `*work`. Returns FOUND, IMPOSSIBLE if there are
 * none, GAVE_UP, or NO_MEMORY. */
int tight(int64_t count, int64_t times, const int64_t *lo, const int64_t *hi, const int64_t *width, const int64_t *size,
          int64_t capacity, int64_t steps, int64_t *work, int64_t *offset) {
    Search s = {.count = count, .capacity = capacity, .size = size, .work = work, .where = offset};
    const size_t n = count + 1, t = times + 1;
    const size_t of_buffer = 5 * sizeof(int64_t) + 6 * sizeof(int32_t);
    const size_t of_time = 2 * sizeof(int64_t) + 4 * sizeof(int32_t) + 1;
    char *block = calloc(1, n * of_buffer + t * of_time);
    if (!block) return NO_MEMORY;
    s.least = (int64_t *)block, s.width = s.least + n, s.worst = s.width + n;
    s.failed_at = s.worst + n, s.failed_to = s.failed_at + n;
    s.floor = s.failed_to + n, s.total = s.floor + t;
    s.first = (int32_t *)(s.total + t), s.last = s.first + n, s.twin = s.last + n, s.placed = s.twin + n;
    int32_t *all = s.placed + n; /* and room to sort them */
    s.members_at = all + 2 * n, s.crossing = s.members_at + t, s.touched = s.crossing + t;
    int32_t *section_at = s.touched + t;
    number_sections(&s, lo, hi, times + 1, section_at, (char *)(section_at + t));
    find_twins(&s);
    for (int64_t b = 0; b < count; b++)
        for (int32_t k = s.first[b]; k < s.last[b]; k++) s.members_at[k + 1]++;
    for (int32_t k = 0; k < s.sections; k++) s.members_at[k + 1] += s.members_at[k];
    s.members = malloc((s.members_at[s.sections] + 1) * sizeof *s.members);
    int found = NO_MEMORY;
    if (s.members) {
        for (int64_t b = 0; b < count; b++)
            for (int32_t k = s.first[b]; k < s.last[b]; k++) s.members[s.members_at[k] + s.crossing[k]++] = b;
        found = rounds(&s, width, steps, all);
    }
    free(s.members);
    free(s.trail);
    free(block);
    return found;
}
