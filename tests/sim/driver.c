/* driver.c - build/tests/sim: runs worlds in the simulated world of src/port/sim, one history per seed.
 *
 * A world is a Lua file of worlds/. It is the site of two servers of one process: of the server that is tested, and of
 * its clients, which are tasks of the second one; sim.side tells the file which one loads it. Each seed runs in a
 * process of its own, so that a crash is a result as well. After sim.crash the seed continues in a new process: with
 * the disk as the crash has left it, sim.life one more, and the notes of sim.note. sim --help describes the options, tests/README.md the rest.
 *
 * What every world must do, beside what it checks itself: no thread waits for ever; the process does not crash;
 * both servers end when they are stopped; at the end no descriptor, no thread and no block of memory is left. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <glob.h>
#include <lauxlib.h>
#include <lua.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "luaserve.h"
#include "port/sim/sim.h"
#include "script/core/runtime.h"
#include "server/server_internal.h"

#define FOLDER TEST_TREE "/tests/sim/worlds"

enum {
    MESSAGE_BYTES = 512,
    BUCKETS = 1024,
    REAL_SECONDS_MAX = 60,
    DRAIN_S = 600,
    STOP_S = 10, /* of servers that have nothing to do */
    EXPECTED_MAX = 32,
    LEVEL_ERROR = 3
};
enum { NOTES_BYTES = 16 << 20, STACK_BYTES = 8 << 20, CRASHED = 4, LIVES_MAX = 50, RESTART_NS = 500000000 };
enum { BLOCKS_KEPT = 2 }; /* by the C library, and for the queue of events */

static void *const kept_address = (void *)UINT64_C(0x180000000000);

typedef struct options {
    uint64_t seed, runs, seconds, batch_seconds;
    const char *world;
    uint32_t faults; /* to draw from: a bit for each row of `faults` */
    bool twice, shrinks, prints_log, is_quiet,
        quits; /* quits: a run whose time is over has ended well, without its end */
} options;

typedef struct result { /* of a run, in memory that both processes see */
    uint64_t hash, calls, now_ns;
    uint32_t faults_used; /* a bit for each row of `faults` */
    unsigned lives;
    bool is_complete;
} result;

typedef struct note {
    struct note *next;
    size_t key_bytes, bytes;
    char text[]; /* the key, the value */
} note;

typedef struct kept { /* what outlives the process of one life, at an address that is the same in each run */
    uint64_t notes_used;
    note *notes[BUCKETS]; /* a note hides the earlier ones of its key */
    _Alignas(16) char notes_text[NOTES_BYTES];
    _Alignas(4096) char stack[STACK_BYTES], disk[]; /* ls_sim_disk_bytes */
} kept;

static struct {
    bool is_done, is_idle, wants_reload, is_faulty;
    ls_server *server; /* that is tested; NULL: not open */
    unsigned reloads;
    const options *options;
    const char *expected[EXPECTED_MAX];      /* texts of lines of the log that are no failure */
    unsigned expected_count, foreign_blocks; /* of OpenSSL, which keeps some until the process ends */
    result *out;
    kept *kept;
} now;

/* ---- faults ----------------------------------------------------------------------------------------------------- */

typedef struct fault {
    const char *name;
    uint32_t *rate, most; /* per million; drawn up to `most` */
    uint32_t *size, size_most;
    bool is_harmless; /* all must succeed in spite of it */
} fault;

#define F(field) &ls_sim_faults_now.field
static const fault faults[] = {
    {"preempt", F(preempt), 60000, NULL, 0, true},
    {"stall", F(stall), 300, F(stall_us_max), 60000, false},
    {"latency", NULL, 0, F(latency_us_max), 150000, true},
    {"slow", F(slow_link), 100000, NULL, 0, false},
    {"reset", F(reset), 30000, NULL, 0, false},
    {"refused", F(connect_refused), 50000, NULL, 0, false},
    {"lost", F(connect_lost), 20000, NULL, 0, false},
    {"accept", F(accept_error), 50000, NULL, 0, false},
    {"descriptors", F(no_descriptors), 30000, NULL, 0, false},
    {"datagrams", F(datagram_lost), 200000, NULL, 0, false},
    {"doubled", F(datagram_doubled), 200000, NULL, 0, false},
    {"late", F(datagram_late), 100000, NULL, 0, false},
    {"disk", F(write_short), 20000, NULL, 0, false},
    {"full", F(write_full), 5000, NULL, 0, false},
    {"clock", F(clock_jump), 2000, F(clock_jump_s_max), 100000, false},
};
#undef F
enum { FAULTS = sizeof faults / sizeof faults[0] };

static uint32_t faults_of(const char *list)
{
    uint32_t found = 0;
    for (int i = 0; i < FAULTS; i++) {
        const size_t len = strlen(faults[i].name);
        for (const char *at = list; (at = strstr(at, faults[i].name)) != NULL; at += len)
            if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0')) found |= 1u << i;
    }
    return found;
}

/* Half of the faults, drawn from the seed, at a rate that is drawn as well: worlds with few kinds of faults find what a
 * world with all of them hides. One run in eight has only harmless ones. */
static uint32_t draw_faults(uint32_t only)
{
    uint32_t used = 0;
    const bool only_harmless = ls_sim_below(8) == 0;
    now.is_faulty = false;
    for (int i = 0; i < FAULTS; i++) {
        const fault *const f = &faults[i];
        const bool drawn = ls_sim_below(2) == 1;
        const uint32_t rate = f->most > 0 ? 1 + (uint32_t)ls_sim_below(f->most) : 0;
        const uint32_t size = f->size_most > 0 ? 1 + (uint32_t)ls_sim_below(1 + ls_sim_below(f->size_most)) : 0;
        if (!drawn || (only_harmless && !f->is_harmless) || !(only & 1u << i)) continue;
        if (f->rate != NULL) *f->rate = rate;
        if (f->size != NULL) *f->size = size;
        used |= 1u << i;
        now.is_faulty |= !f->is_harmless;
    }
    return used;
}

/* ---- what Lua sees: the table `sim` ------------------------------------------------------------------------------ */

static int sim_random(lua_State *L)
{
    const lua_Integer bound = luaL_checkinteger(L, 1);
    luaL_argcheck(L, bound > 0, 1, "must be > 0");
    lua_pushinteger(L, 1 + (lua_Integer)ls_sim_below((uint64_t)bound));
    return 1;
}

static int sim_now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)ls_sim_now_ns() / 1e9);
    return 1;
}

static int sim_compute(lua_State *L) /* the thread computes, or blocks, for so many seconds */
{
    ls_sim_compute((uint64_t)(luaL_checknumber(L, 1) * 1e9));
    return 0;
}

static int sim_fail(lua_State *L)
{
    luaL_traceback(L, L, luaL_checkstring(L, 1), 1);
    ls_sim_fail("%s", lua_tostring(L, -1));
}

/* ---- what outlives a crash --------------------------------------------------------------------------------------- */

static void crash(void)
{
    result *const r = now.out;
    r->hash = r->hash * 31 + ls_sim_total.hash;
    r->calls += ls_sim_total.calls;
    r->now_ns = ls_sim_now_ns();
    r->lives++;
    fflush(NULL);
    _exit(CRASHED);
}

static int sim_crash(lua_State *L) /* now, or at the change of this number of the disk from now; 0: no more */
{
    if (lua_isnoneornil(L, 1)) crash();
    ls_sim_disk_crash_after((uint64_t)luaL_checkinteger(L, 1), crash);
    return 0;
}

static note **bucket_of(const char *key, size_t bytes)
{
    unsigned bucket = 0;
    for (size_t i = 0; i < bytes; i++) bucket = bucket * 31 + (unsigned char)key[i];
    return &now.kept->notes[bucket % BUCKETS];
}

static note *find_note(const char *key, size_t bytes)
{
    note *n = *bucket_of(key, bytes);
    while (n != NULL && (n->key_bytes != bytes || memcmp(n->text, key, bytes) != 0)) n = n->next;
    return n;
}

static size_t size_of(const note *n)
{
    return (sizeof *n + n->key_bytes + n->bytes + 15) / 16 * 16;
}

static char *add_note(const char *key, size_t key_bytes, size_t bytes)
{
    note **const first = bucket_of(key, key_bytes);
    note *const n = (note *)(void *)&now.kept->notes_text[now.kept->notes_used];
    if (sizeof *n + key_bytes + bytes + 16 > NOTES_BYTES - now.kept->notes_used) ls_sim_fail("too many notes");
    *n = (note){.next = *first, .key_bytes = key_bytes, .bytes = bytes};
    memcpy(n->text, key, key_bytes);
    *first = n;
    now.kept->notes_used += size_of(n);
    return n->text + key_bytes;
}

/* sim.count(key [, add]) -> the sum of what was added for this key (1) in this life, in all Lua states of both servers:
 * a note whose key begins with the number of the life. */
static int sim_count(lua_State *L)
{
    size_t bytes;
    lua_Integer value = 0;
    const lua_Integer add = luaL_optinteger(L, 2, 1);
    lua_pushfstring(L, "\n%d %s", (int)now.out->lives, luaL_checkstring(L, 1));
    const char *const key = lua_tolstring(L, -1, &bytes);
    const note *const n = find_note(key, bytes);
    char *const at = n != NULL ? (char *)n->text + bytes : add_note(key, bytes, sizeof value);
    if (n != NULL) memcpy(&value, at, sizeof value);
    value += add;
    memcpy(at, &value, sizeof value);
    lua_pushinteger(L, value);
    return 1;
}

static int sim_note(lua_State *L)
{
    size_t key_bytes, bytes;
    const char *const key = luaL_checklstring(L, 1, &key_bytes), *const value = luaL_checklstring(L, 2, &bytes);
    memcpy(add_note(key, key_bytes, bytes), value, bytes);
    return 0;
}

static int sim_noted(lua_State *L) /* -> the value; nil: none */
{
    size_t bytes;
    const char *const key = luaL_checklstring(L, 1, &bytes);
    const note *const n = find_note(key, bytes);
    if (n == NULL) return 0;
    lua_pushlstring(L, n->text + n->key_bytes, n->bytes);
    return 1;
}

/* sim.noted_all(prefix) -> { { key, value }, ... } of the keys that begin with it, in the order of their last notes. */
static int sim_noted_all(lua_State *L)
{
    size_t bytes;
    lua_Integer count = 0;
    const char *const prefix = luaL_checklstring(L, 1, &bytes);
    lua_newtable(L);
    for (size_t at = 0; at < now.kept->notes_used;) {
        const note *const n = (note *)(void *)&now.kept->notes_text[at];
        at += size_of(n);
        if (n->key_bytes < bytes || memcmp(n->text, prefix, bytes) != 0 || find_note(n->text, n->key_bytes) != n)
            continue;
        lua_createtable(L, 2, 0);
        lua_pushlstring(L, n->text, n->key_bytes);
        lua_rawseti(L, -2, 1);
        lua_pushlstring(L, n->text + n->key_bytes, n->bytes);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

static int sim_reload(lua_State *L) /* -> how many reloads have ended */
{
    now.wants_reload = true;
    ls_sim_wake_all(&now);
    lua_pushinteger(L, now.reloads);
    return 1;
}

static void add_stat(void *L, const char *name, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

static int sim_stats(lua_State *L) /* -> ls.stats() of the server, with the names of `running` as "running.requests" */
{
    lua_newtable(L);
    ls_runtime_stats(now.server->runtime, add_stat, L);
    return 1;
}

static int sim_done(lua_State *L) /* (is_idle): the server has nothing to do, so that its stop is short */
{
    now.is_done = true;
    now.is_idle = lua_toboolean(L, 1);
    ls_sim_wake_all(&now);
    return 0;
}

static int sim_calm(lua_State *L) /* no faults from now on: what is left must end well */
{
    (void)L;
    ls_sim_calm();
    return 0;
}

static int sim_expect(lua_State *L) /* lines of the log with this text are no failure, though their level is error */
{
    const char *text = luaL_checkstring(L, 1);
    for (unsigned i = 0; i < now.expected_count; i++)
        if (strcmp(now.expected[i], text) == 0) return 0; /* by another state, or before a reload */
    luaL_argcheck(L, now.expected_count < EXPECTED_MAX - 1, 1, "too many");
    now.expected[now.expected_count++] = strdup(text);
    return 0;
}

static int define_sim(lua_State *L, void *side)
{
    static const luaL_Reg functions[] = {
        {"random", sim_random},       {"now", sim_now},     {"compute", sim_compute},
        {"fail", sim_fail},           {"count", sim_count}, {"reload", sim_reload},
        {"done", sim_done},           {"calm", sim_calm},   {"expect", sim_expect},
        {"crash", sim_crash},         {"note", sim_note},   {"noted", sim_noted},
        {"noted_all", sim_noted_all}, {"stats", sim_stats}, {NULL, NULL},
    };
    luaL_newlib(L, functions);
    lua_pushstring(L, side);
    lua_setfield(L, -2, "side");
    lua_pushboolean(L, now.is_faulty);
    lua_setfield(L, -2, "faulty"); /* the seed has drawn faults */
    lua_pushinteger(L, 1 + (lua_Integer)now.out->lives);
    lua_setfield(L, -2, "life");
    lua_setglobal(L, "sim");
    return 0;
}

static void log_line(int level, const char *line, size_t bytes, void *side)
{
    ls_sim_step("log", level, (int64_t)bytes);
    if (now.options->prints_log)
        fprintf(stderr, "%10.6f %s %.*s\n", (double)ls_sim_now_ns() / 1e9 - 1, (const char *)side, (int)bytes, line);
    if (level < LEVEL_ERROR) return;
    for (unsigned i = 0; i < now.expected_count; i++) {
        if (memmem(line, bytes, now.expected[i], strlen(now.expected[i])) == NULL) continue;
        if (find_note(now.expected[i], strlen(now.expected[i])) == NULL)
            (void)add_note(now.expected[i], strlen(now.expected[i]), 0);
        return;
    }
    ls_sim_fail("%s has logged an error: %.*s", (const char *)side, (int)bytes, line);
}

/* ---- the memory of OpenSSL ---------------------------------------------------------------------------------------- */

static void *foreign_malloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    now.foreign_blocks++;
    return malloc(size);
}

static void *foreign_realloc(void *block, size_t size, const char *file, int line)
{
    return block != NULL ? realloc(block, size) : foreign_malloc(size, file, line);
}

static void foreign_free(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    now.foreign_blocks -= block != NULL;
    free(block);
}

/* ---- one run ---------------------------------------------------------------------------------------------------- */

static ls_server *open_side(const char *path, const char *side, unsigned threads)
{
    const ls_server_options o = {.size = sizeof o,
                                 .site = path,
                                 .threads = threads,
                                 .open = define_sim,
                                 .user = (void *)side,
                                 .log = log_line,
                                 .log_level = "info"};
    char message[MESSAGE_BYTES];
    ls_server *server;
    if (ls_server_open(&o, &server, message, sizeof message) < 0 || ls_server_start(server) < 0)
        ls_sim_fail("%s: %s", side, message);
    return server;
}

static void stop_side(ls_server *server, const char *side)
{
    ls_server_stop(server);
    const int most_s = now.is_idle ? STOP_S : DRAIN_S;
    const uint64_t until_ns = ls_sim_now_ns() + (uint64_t)most_s * 1000000000;
    const int how = ls_server_wait(server);
    if (ls_sim_now_ns() > until_ns) ls_sim_fail("%s: the stop has lasted more than %d s", side, most_s);
    if (how < 0 && (how != LS_ETIMEDOUT || now.is_idle)) ls_sim_fail("%s ended: %s", side, ls_error_text(how));
}

static void run(const options *o, result *out)
{
    char path[MESSAGE_BYTES];
    const uint64_t start_ns = (ls_sim_begin(o->seed ^ (uint64_t)out->lives << 48), ls_sim_now_ns());
    const unsigned fds = ls_sim_total.fds, blocks = ls_sim_total.blocks;
    if (out->lives > 0) ls_sim_move_to(out->now_ns + RESTART_NS);
    ls_sim_disk_begin(now.kept->disk, out->lives + 1);
    (void)snprintf(path, sizeof path, FOLDER "/%s.lua", o->world);
    out->faults_used |= draw_faults(o->faults);
    (void)CRYPTO_set_mem_functions(foreign_malloc, foreign_realloc, foreign_free);
    const unsigned threads = 1 + (unsigned)ls_sim_below(3);
    const ls_sim_faults wanted = ls_sim_faults_now;
    ls_sim_faults_now.no_descriptors = ls_sim_faults_now.connect_refused = ls_sim_faults_now.write_full =
        0; /* a server that cannot start is no history */
    ls_server *const server = now.server = open_side(path, "server", threads);
    ls_server *const clients = open_side(path, "clients", 1);
    ls_sim_faults_now = wanted;
    const uint64_t until_ns = start_ns + o->seconds * UINT64_C(1000000000);
    while (!now.is_done && ls_sim_now_ns() < until_ns) {
        if (now.wants_reload) {
            char message[MESSAGE_BYTES];
            now.wants_reload = false;
            const int how = ls_server_reload(server, message, sizeof message);
            ls_sim_step("reload", how, 0);
            now.reloads++;
            continue;
        }
        (void)ls_sim_wait(&now, until_ns);
    }
    ls_sim_faults_now.no_descriptors = 0;
    if (!now.is_done && o->quits) {
        out->is_complete = true;
        return;
    }
    if (!now.is_done)
        now.expected[now.expected_count++] = "ended early"; /* the time was over before the clients were */
    const bool first = ls_sim_below(2) == 1;
    if (first) stop_side(server, "server");
    stop_side(clients, "clients");
    ls_server_close(clients);
    if (!first) stop_side(server, "server");
    ls_server_close(server); /* after the clients, which look at its figures */
    if (ls_sim_total.fds != fds) ls_sim_fail("%u descriptors are left open", ls_sim_total.fds - fds);
    if (ls_sim_total.threads != 1) ls_sim_fail("%u threads are left", ls_sim_total.threads - 1);
    out->hash = out->hash * 31 + ls_sim_total.hash;
    out->calls += ls_sim_total.calls;
    out->now_ns = ls_sim_now_ns() - start_ns;
    for (uint64_t ns; (ns = ls_sim_next_event()) != UINT64_MAX; ls_sim_run_events()) ls_sim_move_to(ns);
    const unsigned left = ls_sim_total.blocks - blocks - now.expected_count - now.foreign_blocks;
    if (left > BLOCKS_KEPT) ls_sim_fail("%u blocks of memory are left", left - BLOCKS_KEPT);
    out->is_complete = true;
}

static void run_and_exit(void)
{
    run(now.options, now.out);
    fflush(NULL);
    _exit(0);
}

/* On a stack of its own: Lua draws the order of its tables from the address of a variable. */
static _Noreturn void run_on_stack(void)
{
    ucontext_t context;
    (void)getcontext(&context);
    context.uc_stack = (stack_t){.ss_sp = now.kept->stack, .ss_size = STACK_BYTES};
    context.uc_link = NULL;
    makecontext(&context, run_and_exit, 0);
    (void)setcontext(&context);
    abort();
}

/* Start a run in a process of its own. */
static pid_t start_run(const options *o)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child != 0) return child;
    if (o->is_quiet) (void)ls_sim_syscall(SYS_dup2, open("/dev/null", O_WRONLY), STDERR_FILENO, 0, 0, 0, 0);
    /* Of the processor's time, and for a turn that no thread has. */
    (void)setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = REAL_SECONDS_MAX}}, NULL);
    (void)setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_sec = 10 * REAL_SECONDS_MAX}}, NULL);
    now.options = o;
    run_on_stack();
}

/* true: it ended well. Else says how it ended. */
static bool run_one(const options *o, result *out)
{
    int status = 0;
    now.out = out;
    const size_t kept_bytes = sizeof *now.kept + ls_sim_disk_bytes;
    now.kept = mmap(kept_address, kept_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    *out = (result){0};
    do {
        const pid_t child = start_run(o);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    } while (WIFEXITED(status) && WEXITSTATUS(status) == CRASHED && out->lives < LIVES_MAX);
    (void)munmap(now.kept, kept_bytes);
    const bool is_right = WIFEXITED(status) && WEXITSTATUS(status) == 0 && out->is_complete;
    if (is_right || o->is_quiet) return is_right;
    if (WIFSIGNALED(status))
        fprintf(stderr, "ended by signal %d%s\n", WTERMSIG(status),
                WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF ? ": no end in sight" : "");
    fprintf(stderr, "FAILED: sim --world %s --seed %llu --seconds %llu", o->world, (unsigned long long)o->seed,
            (unsigned long long)o->seconds);
    const char *before = " --faults ";
    if (o->faults == 0) fprintf(stderr, "%snone", before);
    for (int i = 0; i < FAULTS && o->faults != UINT32_MAX; i++) {
        if (!(o->faults & 1u << i)) continue;
        fprintf(stderr, "%s%s", before, faults[i].name);
        before = ",";
    }
    fputc('\n', stderr);
    return false;
}

/* ---- many runs -------------------------------------------------------------------------------------------------- */

/* Look for a shorter history that fails: fewer seconds, then fewer kinds of faults. Its failure may be another one. */
static void shrink(options o, result *r)
{
    o.faults &= r->faults_used;
    o.quits = o.is_quiet = true; /* a world judges its end only if it has come to it */
    while (o.seconds > 1) {
        options shorter = o;
        shorter.seconds = o.seconds / 2;
        if (run_one(&shorter, r)) break;
        o = shorter;
    }
    for (int i = 0; i < FAULTS; i++) {
        options fewer = o;
        fewer.faults &= ~(1u << i);
        if (fewer.faults != o.faults && !run_one(&fewer, r)) o = fewer;
    }
    fprintf(stderr, "\nthe shortest history found:\n");
    o.is_quiet = false;
    (void)run_one(&o, r);
}

static double real_seconds(void)
{
    struct timespec t = {0};
    (void)ls_sim_syscall(228, CLOCK_MONOTONIC, (long)&t, 0, 0, 0,
                         0); /* SYS_clock_gettime: the system's, not the world's */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int run_all(const options *o)
{
    char path[MESSAGE_BYTES];
    glob_t
        worlds; /* all, also where only one runs: its memory is at the same addresses then, and its history the same */
    const bool is_read = glob(FOLDER "/*.lua", 0, NULL, &worlds) == 0;
    (void)snprintf(path, sizeof path, FOLDER "/%s.lua", o->world != NULL ? o->world : "*");
    if (!is_read || (o->world != NULL && access(path, R_OK) != 0)) {
        fprintf(stderr, "sim: there is no %s\n", path);
        return 2;
    }
    result *const results = mmap(NULL, 2 * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const double started = real_seconds();
    uint64_t done = 0, failed = 0, simulated_ns = 0, calls = 0;
    for (uint64_t i = 0; o->batch_seconds > 0 ? real_seconds() - started < (double)o->batch_seconds : i < o->runs;
         i++) {
        options one = *o;
        one.seed += i;
        if (o->world == NULL) {
            const char *const at = worlds.gl_pathv[one.seed % worlds.gl_pathc] + strlen(FOLDER "/");
            (void)snprintf(path, sizeof path, "%.*s", (int)(strlen(at) - strlen(".lua")), at);
            one.world = path;
        }
        bool is_right = run_one(&one, &results[0]);
        if (is_right && o->twice) {
            is_right = run_one(&one, &results[1]);
            if (is_right && (results[0].hash != results[1].hash || results[0].calls != results[1].calls)) {
                fprintf(stderr, "FAILED: two runs of the seed %llu of %s differ: %llu and %llu calls\n",
                        (unsigned long long)one.seed, one.world, (unsigned long long)results[0].calls,
                        (unsigned long long)results[1].calls);
                is_right = false;
            }
        }
        if (!is_right && o->shrinks) shrink(one, &results[0]);
        done++;
        failed += !is_right;
        simulated_ns += results[0].now_ns;
        calls += results[0].calls;
        if (!is_right && o->runs == 1) return 1;
    }
    const double took = real_seconds() - started;
    printf("%llu seeds of %zu worlds from %llu, %llu failed: %.1f simulated s, %llu calls, hash %016llx, in %.1f s "
           "(%.0f seeds an hour)\n",
           (unsigned long long)done, o->world != NULL ? 1 : worlds.gl_pathc, (unsigned long long)o->seed,
           (unsigned long long)failed, (double)simulated_ns / 1e9, (unsigned long long)calls,
           (unsigned long long)results[0].hash, took, (double)done / took * 3600);
    return failed > 0;
}

static const char usage[] =
    "usage: sim [--seed N] [--runs N | --for SECONDS] [--world NAME] [--seconds S] [--faults LIST] [--twice] "
    "[--shrink] [--log]\n"
    "\n"
    "Runs the worlds of tests/sim/worlds, one history per seed; world and seed of a failure are printed.\n"
    "\n"
    "  --seed N        the first seed (1)\n"
    "  --runs N        so many seeds, each of the next world (1)\n"
    "  --for SECONDS   as many seeds as this time allows, and print how many an hour\n"
    "  --world NAME    only this one\n"
    "  --seconds S     simulated seconds of a run, at most (300)\n"
    "  --faults LIST   draw from these faults only: none, or some of preempt,stall,latency,slow,reset,refused,lost,\n"
    "                  accept,descriptors,datagrams,doubled,late,disk,full,clock\n"
    "  --twice         run each seed twice; different histories are a failure\n"
    "  --shrink        look for a shorter history of a failure\n"
    "  --log           print the logs of both servers\n"
    "\n"
    "LUASERVE_SIM_TRACE=FILE writes every step of a run.\n";

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"seed", required_argument, NULL, 's'},
        {"runs", required_argument, NULL, 'r'},
        {"for", required_argument, NULL, 'F'},
        {"world", required_argument, NULL, 'w'},
        {"seconds", required_argument, NULL, 'S'},
        {"faults", required_argument, NULL, 'f'},
        {"twice", no_argument, NULL, '2'},
        {"shrink", no_argument, NULL, 'k'},
        {"log", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    options o = {.seed = 1, .runs = 1, .seconds = 300, .faults = UINT32_MAX};
    for (int option; (option = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
        char *end = NULL;
        uint64_t *const number = option == 's'   ? &o.seed
                                 : option == 'r' ? &o.runs
                                 : option == 'F' ? &o.batch_seconds
                                 : option == 'S' ? &o.seconds
                                                 : NULL;
        if (number != NULL && (*number = strtoull(optarg, &end, 10), end == optarg || *end != '\0')) {
            fprintf(stderr, "sim: '%s' is not a number\n", optarg);
            return 2;
        }
        switch (option) {
        case 'w': o.world = optarg; break;
        case 'f': o.faults = faults_of(optarg); break;
        case '2': o.twice = true; break;
        case 'k': o.shrinks = true; break;
        case 'l': o.prints_log = true; break;
        case 'h': fputs(usage, stdout); return 0;
        case '?': fputs(usage, stderr); return 2;
        default: break;
        }
    }
    return run_all(&o);
}
