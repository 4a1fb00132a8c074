/* The allocator that PyTorch asks for a GPU's memory, where addresses are planned (stepping.py).
 *
 * Within a planned step each request of the stepping thread gets the address that was planned for it: the requests come
 * in a fixed order, and the size of each is compared. A request that differs, or whose bytes are still in use, gets
 * memory like any other, and the step is told so at its end. So no request ever gets a wrong address.
 *
 * All other requests get blocks that are kept when they are given back, for later requests of the same device and
 * stream. Another stream may have used a block (mdn_record_stream): such a block goes back to the driver, which waits
 * for the device first.
 *
 * No header of CUDA is needed: the driver's two functions are handed in. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define UNIT 512      /* bytes: blocks are multiples of it */
#define DEVICES 64
#define NOWHERE ((size_t)-1)
#define LOOSE 8       /* a kept block serves requests that leave at most one part in so many of it */

typedef int (*take_fn)(void **, size_t);
typedef int (*give_fn)(void *);

enum { FINE, OTHER_SIZE, TOO_MANY, TOO_FEW, IN_USE, NO_MEMORY, OTHER_STREAM };

typedef struct block {
  struct block *next;
  char *at;
  size_t size;
  void *stream;
  int device, shared;
} block;

typedef struct {
  long n;
  size_t *size, *at; /* at: from the arena's start; NOWHERE: memory like any other */
} plan;

typedef struct {
  char *at;
  size_t size;
} range;

typedef struct {
  long kind, number, size, instruction; /* kind 0: taken, 1: given back */
} event;

#define BUCKETS 4096
static struct {
  pthread_mutex_t lock;
  take_fn take;
  give_fn give;
  block *used[BUCKETS], *kept;
  range arena[DEVICES];
  size_t reserved, in_use, peak_reserved, peak_in_use;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
  int active, recording, device, status;
  pthread_t thread;
  void *stream;
  plan *plan;
  long next, end, instruction, wrong, got;
  range *live; /* planned addresses in use, or what a recording has seen and nobody has given back */
  long *number, lives, room;
  event *log;
  long logged, log_room;
} step;

static unsigned bucket(const void *at) { return (unsigned)(((uintptr_t)at / UNIT) * 2654435761u >> 7) % BUCKETS; }

static size_t rounded(size_t size) { return (size + UNIT - 1) / UNIT * UNIT; }

static void count(long reserved, long in_use) {
  all.reserved += reserved;
  all.in_use += in_use;
  if (all.reserved > all.peak_reserved) all.peak_reserved = all.reserved;
  if (all.in_use > all.peak_in_use) all.peak_in_use = all.in_use;
}

static void give_back(block *b) {
  all.give(b->at);
  count(-(long)b->size, 0);
  free(b);
}

static void drop_kept(int device) {
  for (block **p = &all.kept; *p;) {
    block *b = *p;
    if (device >= 0 && b->device != device) {
      p = &b->next;
      continue;
    }
    *p = b->next;
    give_back(b);
  }
}

/* New memory of the driver; kept blocks are given up if it has none. */
static void *taken(size_t size, int device) {
  void *at = NULL;
  if (all.take(&at, size) || !at) {
    drop_kept(device);
    at = NULL;
    if (all.take(&at, size)) at = NULL;
  }
  if (at) count((long)size, 0);
  return at;
}

static void *like_any_other(size_t size, int device, void *stream) {
  size_t whole = rounded(size);
  block **best = NULL, *b;
  for (block **p = &all.kept; *p; p = &(*p)->next)
    if ((*p)->device == device && (*p)->stream == stream && (*p)->size >= whole && (*p)->size - whole <= (*p)->size / LOOSE &&
        (!best || (*p)->size < (*best)->size))
      best = p;
  if (best) {
    b = *best;
    *best = b->next;
  } else {
    if (!(b = calloc(1, sizeof *b))) return NULL;
    b->size = whole;
    b->at = taken(whole, device);
    if (!b->at) {
      fprintf(stderr, "minidnn: the GPU has no %zu bytes left (%zu are in use, %zu reserved)\n", whole, all.in_use, all.reserved);
      free(b);
      return NULL;
    }
    b->device = device;
    b->stream = stream;
  }
  unsigned k = bucket(b->at);
  b->next = all.used[k];
  all.used[k] = b;
  count(0, (long)b->size);
  return b->at;
}

static int grown(void **p, long *room, long n, size_t each) {
  if (n < *room) return 1;
  long more = *room ? 2 * *room : 256;
  void *q = realloc(*p, more * each);
  if (!q) return 0;
  *p = q;
  *room = more;
  return 1;
}

static int live(char *at, size_t size, long number) {
  long room = step.room;
  if (!grown((void **)&step.live, &room, step.lives, sizeof *step.live)) return 0;
  room = step.room;
  if (!grown((void **)&step.number, &room, step.lives, sizeof *step.number)) return 0;
  step.room = room;
  step.live[step.lives].at = at;
  step.live[step.lives].size = size;
  step.number[step.lives++] = number;
  return 1;
}

/* Forget that these bytes are in use. Returns their number, or -1. */
static long ended(const char *at) {
  for (long i = step.lives - 1; i >= 0; i--)
    if (step.live[i].at == at) {
      long number = step.number[i];
      step.lives--;
      step.live[i] = step.live[step.lives];
      step.number[i] = step.number[step.lives];
      return number;
    }
  return -1;
}

static void note(long kind, long number, size_t size) {
  if (!grown((void **)&step.log, &step.log_room, step.logged, sizeof *step.log)) {
    step.status = NO_MEMORY;
    return;
  }
  step.log[step.logged++] = (event){kind, number, (long)size, step.instruction};
}

static void *wrong(int status, size_t size, int device, void *stream) {
  if (step.status == FINE) {
    step.status = status;
    step.wrong = step.next;
    step.got = (long)size;
  }
  return like_any_other(size, device, stream);
}

static void *planned(size_t size, int device, void *stream) {
  if (step.status != FINE) return like_any_other(size, device, stream);
  if (step.next >= step.end) return wrong(TOO_MANY, size, device, stream);
  if (step.plan->size[step.next] != size) return wrong(OTHER_SIZE, size, device, stream);
  if (stream != step.stream) return wrong(OTHER_STREAM, size, device, stream);
  size_t from = step.plan->at[step.next];
  if (from == NOWHERE) {
    step.next++;
    return like_any_other(size, device, stream);
  }
  char *at = all.arena[device].at + from;
  for (long i = 0; i < step.lives; i++)
    if (at < step.live[i].at + step.live[i].size && step.live[i].at < at + size)
      return wrong(IN_USE, size, device, stream);
  if (!live(at, size, step.next)) return wrong(NO_MEMORY, size, device, stream);
  step.next++;
  count(0, (long)rounded(size));
  return at;
}

void *mdn_alloc(ssize_t size, int device, void *stream) {
  if (size <= 0 || device < 0 || device >= DEVICES || !all.take) return NULL;
  pthread_mutex_lock(&all.lock);
  void *at;
  if (step.active && device == step.device && pthread_equal(pthread_self(), step.thread)) {
    if (step.recording) {
      at = like_any_other((size_t)size, device, stream);
      if (at && !live(at, (size_t)size, step.next)) step.status = NO_MEMORY;
      note(0, step.next++, (size_t)size);
    } else {
      at = planned((size_t)size, device, stream);
    }
    if (!at && step.status == FINE) {
      step.status = NO_MEMORY;
      step.wrong = step.next;
      step.got = (long)size;
    }
  } else {
    at = like_any_other((size_t)size, device, stream);
  }
  pthread_mutex_unlock(&all.lock);
  return at;
}

void mdn_free(void *ptr, ssize_t size, int device, void *stream) {
  (void)stream;
  if (!ptr) return;
  pthread_mutex_lock(&all.lock);
  char *at = ptr;
  range *arena = device >= 0 && device < DEVICES ? &all.arena[device] : NULL;
  if (arena && arena->at && at >= arena->at && at < arena->at + arena->size) {
    if (ended(at) >= 0) count(0, -(long)rounded((size_t)size));
  } else {
    if (step.recording) {
      long number = ended(at);
      if (number >= 0) note(1, number, 0);
    }
    for (block **p = &all.used[bucket(at)]; *p; p = &(*p)->next)
      if ((*p)->at == at) {
        block *b = *p;
        *p = b->next;
        count(0, -(long)b->size);
        if (b->shared) {
          give_back(b);
        } else {
          b->next = all.kept;
          all.kept = b;
        }
        break;
      }
  }
  pthread_mutex_unlock(&all.lock);
}

/* Another stream uses these bytes: they are not handed out again before the device has ended all its work. */
void mdn_record_stream(void *ptr, void *stream) {
  pthread_mutex_lock(&all.lock);
  for (block *b = ptr ? all.used[bucket(ptr)] : NULL; b; b = b->next)
    if (b->at == (char *)ptr && b->stream != stream) b->shared = 1;
  pthread_mutex_unlock(&all.lock);
}

void mdn_drop_kept(void) {
  pthread_mutex_lock(&all.lock);
  drop_kept(-1);
  pthread_mutex_unlock(&all.lock);
}

void mdn_setup(take_fn take, give_fn give) {
  pthread_mutex_lock(&all.lock);
  all.take = take;
  all.give = give;
  pthread_mutex_unlock(&all.lock);
}

void mdn_bytes(size_t *to, int reset) {
  pthread_mutex_lock(&all.lock);
  to[0] = all.reserved;
  to[1] = all.peak_reserved;
  to[2] = all.in_use;
  to[3] = all.peak_in_use;
  if (reset) {
    all.peak_reserved = all.reserved;
    all.peak_in_use = all.in_use;
  }
  pthread_mutex_unlock(&all.lock);
}

/* Make the arena of a device at least so large. Between steps; the step that used the former one may still be running,
 * and the driver waits for it. Returns 0, or IN_USE, or NO_MEMORY, which leave the arena as it was, or without bytes. */
int mdn_reserve(int device, size_t size) {
  if (device < 0 || device >= DEVICES) return NO_MEMORY;
  pthread_mutex_lock(&all.lock);
  range *arena = &all.arena[device];
  int status = FINE;
  if (size > arena->size) {
    if (step.lives) {
      status = IN_USE;
    } else {
      if (arena->at) {
        all.give(arena->at);
        count(-(long)arena->size, 0);
      }
      arena->size = 0;
      arena->at = taken(rounded(size), device);
      if (arena->at) arena->size = rounded(size);
      else status = NO_MEMORY;
    }
  }
  pthread_mutex_unlock(&all.lock);
  return status;
}

/* Give all arenas back, and forget a step. For tests, between two drivers. */
void mdn_forget(void) {
  pthread_mutex_lock(&all.lock);
  for (int i = 0; i < DEVICES; i++)
    if (all.arena[i].at) {
      all.give(all.arena[i].at);
      count(-(long)all.arena[i].size, 0);
      all.arena[i] = (range){NULL, 0};
    }
  for (int k = 0; k < BUCKETS; k++)
    while (all.used[k]) {
      block *b = all.used[k];
      all.used[k] = b->next;
      count(0, -(long)b->size);
      give_back(b);
    }
  step.active = step.recording = 0;
  for (; step.lives; step.lives--) count(0, -(long)rounded(step.live[step.lives - 1].size));
  pthread_mutex_unlock(&all.lock);
}

plan *mdn_plan(long n, const size_t *size, const size_t *at) {
  plan *p = malloc(sizeof *p);
  if (!p) return NULL;
  p->n = n;
  p->size = malloc((n ? n : 1) * sizeof *size);
  p->at = malloc((n ? n : 1) * sizeof *at);
  if (!p->size || !p->at) {
    free(p->size), free(p->at), free(p);
    return NULL;
  }
  memcpy(p->size, size, n * sizeof *size);
  memcpy(p->at, at, n * sizeof *at);
  return p;
}

void mdn_drop_plan(plan *p) { free(p->size), free(p->at), free(p); }

/* Begin a recording: the first of a step's halves follows. */
void mdn_record(void) {
  pthread_mutex_lock(&all.lock);
  step.recording = 1;
  step.logged = step.lives = step.next = 0;
  pthread_mutex_unlock(&all.lock);
}

/* The number of the recorded request that got this address, which is still in use; -1: there is none. */
long mdn_number(const void *at) {
  pthread_mutex_lock(&all.lock);
  long result = -1;
  for (long i = step.recording ? step.lives - 1 : -1; i >= 0 && result < 0; i--)
    if (step.live[i].at == (const char *)at) result = step.number[i];
  pthread_mutex_unlock(&all.lock);
  return result;
}

/* End a recording; the log can be read. What it saw and nobody gave back is no longer looked at. */
long mdn_recorded(event **log) {
  pthread_mutex_lock(&all.lock);
  step.recording = 0;
  step.lives = 0;
  *log = step.log;
  long n = step.logged;
  pthread_mutex_unlock(&all.lock);
  return n;
}

/* A half of a step begins in this thread: the requests `first` up to `end` of the plan; NULL: they are recorded.
 * Returns FINE, or IN_USE if another half is under way. */
int mdn_enter(int device, void *stream, plan *p, long first, long end) {
  pthread_mutex_lock(&all.lock);
  int status = step.active || (!p && !step.recording) || (p && step.recording) ? IN_USE : FINE;
  if (status == FINE) {
    step.active = 1;
    step.device = device;
    step.stream = stream;
    step.thread = pthread_self();
    step.plan = p;
    step.status = FINE;
    step.wrong = step.got = 0;
    step.instruction = -1;
    if (p) {
      step.next = first;
      step.end = end;
    }
  }
  pthread_mutex_unlock(&all.lock);
  return status;
}

void mdn_note(long instruction) { step.instruction = instruction; }

/* A half ends. `to`: the request that was not as planned, its bytes, and how many requests there were so far. */
int mdn_leave(long *to, int complete) {
  pthread_mutex_lock(&all.lock);
  if (step.status == FINE && complete && step.plan && step.next < step.end) {
    step.status = TOO_FEW;
    step.wrong = step.next;
    step.got = 0;
  }
  to[0] = step.wrong;
  to[1] = step.got;
  to[2] = step.next;
  step.active = 0;
  int status = step.status;
  pthread_mutex_unlock(&all.lock);
  return status;
}
