/* post_driver.c: csrc/exchange/post_box.c under the sanitizers, for test_post_native.py.
 *
 *     processes|threads FOLDER MEMBERS MESSAGES SEED
 *
 * So many random messages between each pair of members, each a process or a thread, which send,
 * read and use them in any order, and some of which do not read for long. Long ones may be offered;
 * some of these are withdrawn, or cannot be read, or are to be stored by the sender, which may not
 * come. Prints, by each member, how many messages lay unread with it at most, how many it used
 * before an older one, how many it offered, withdrew and refused, stored, and read all the same.
 *
 *     unread FOLDER MESSAGES SEED
 *
 * So many messages before the first is read, four times. Prints the allocated KiB of the file when
 * all were sent, when all were read, and at the end, for each turn; every second time memory is
 * given back.
 *
 *     left FOLDER MESSAGES SEED      the sender has ended before the first is read
 *     failing FOLDER STEP SEED       without memory and mappings, from a call on and for so many;
 *                                    prints how often the sender and the receiver could not
 *     interrupted FOLDER SEED        by signals
 *     limited FOLDER                 no process may make files of that length
 *     memory FOLDER SEED             prints how many KiB a message of 32 MiB takes
 *     parts FOLDER SEED              a message that is longer than may wait for its receiver;
 * prints how many parts it had, and how many waited at most
 *
 * The bytes of each message are compared. Exits with 1 at the first error. */
#include "exchange/post_box.h"
#include "failing_calls.h"
#include "members.h"
#include "no_layouts.h"
#include "post_parts.h"

#include <sys/resource.h>
#include <sys/stat.h>

enum { HELD = 4096, WATCHED = 4096 };

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct member {
    int rank, members, messages;
    const char *folder, *name;
    uint64_t seed;
    tempi_post_box *box;
    struct {
        int from;
        tempi_post *post;
        char *memory; /* in which the sender may store it; or NULL */
    } held[HELD];     /* read, and not used yet, in their order */
    int nheld, most, early;
    struct {
        int to;
        tempi_post *post;
        char *memory;
    } watched[WATCHED]; /* offered, and not over */
    int nwatched, offered, withdrawn, refused, stored, waited;
    int sent[MEMBERS], came[MEMBERS];
} member;

static uint64_t key_of(const member *m, int from, int to, int i)
{
    uint64_t key = (((m->seed * 8 + (uint64_t)from) * 8 + (uint64_t)to) << 32) + (uint64_t)i + 1;
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9u; /* as SplitMix64 does */
    key = (key ^ key >> 27) * 0x94D049BB133111EBu;
    return (key ^ key >> 31) | 1;
}

static void watch(member *m, int to, tempi_post *post, char *memory)
{
    if (m->nwatched == WATCHED)
        fail("too many offers");
    m->watched[m->nwatched].to = to;
    m->watched[m->nwatched].post = post;
    m->watched[m->nwatched++].memory = memory;
    ++m->offered;
}

/* False: no memory. */
static bool send_as(member *m, int to, int64_t n, bool offers)
{
    tempi_offer offer;
    void *data = NULL;
    const uint64_t key = key_of(m, m->rank, to, m->sent[to]);
    char *memory = offers && n > 0 ? memory_of(key, n, tempi_post_access(m->box, to), &offer)
                                   : NULL;
    static const int forced[] = {-1, TEMPI_COPY_STORED, TEMPI_COPY_REUSED, TEMPI_COPY_STORED};
    if (memory)
        offer.runs = 1 + (key >> 13 & 1); /* of two it could be stored */
    tempi_copy_way_force(forced[key >> 11 & 3]);
    tempi_post *post = tempi_post_new(m->box, to, n, memory ? &offer : NULL, n, false, &data);
    tempi_copy_way_force(-1);
    if (!post)
        return false;
    if (post->next || post->bytes != n || (n > 0 && (data == NULL) != post->offers))
        fail("a new message is not");
    if (post->offers && offer.runs == 1 && post->course.way == TEMPI_COPY_STORED)
        fail("bytes without gaps are to be stored");
    if (post->offers) {
        watch(m, to, post, memory);
    } else {
        put(key, data, n);
        release(memory);
    }
    post->channel = key;
    post->call = (uint64_t)m->sent[to]++;
    tempi_post_send(m->box, to);
    return true;
}

static bool send_bytes(member *m, int to, int64_t n)
{
    return send_as(m, to, n, false);
}

static bool send_one(member *m, int to, bool offers)
{
    return send_as(m, to, size_of(key_of(m, m->rank, to, m->sent[to])), offers);
}

/* Some are withdrawn, and those that are refused; the memory of those that are over is gone. */
static void look_at_offers(member *m, dice *d)
{
    void *data;
    for (int i = m->nwatched - 1; i >= 0; --i) {
        tempi_post *post = m->watched[i].post;
        const tempi_op whole = {.mem = m->watched[i].memory, .n = post->bytes};
        if (draw(d, 0, 3) == 0)
            m->stored += tempi_post_store(m->box, m->watched[i].to, post, &whole);
        const bool refused = tempi_post_is_refused(post);
        if ((refused || draw(d, 0, 60) == 0) &&
            tempi_post_withdraw(m->box, m->watched[i].to, post, post->bytes, &data)) {
            memcpy(data, m->watched[i].memory, (size_t)post->bytes);
            tempi_post_withdrawn(post);
            ++*(refused ? &m->refused : &m->withdrawn);
        }
        if (!tempi_post_is_over(post))
            continue;
        memset(m->watched[i].memory, 0, (size_t)post->bytes);
        release(m->watched[i].memory);
        post->packing = 1e-9 * (double)draw(d, 1, 1000000);
        tempi_post_unwatch(post);
        m->watched[i] = m->watched[--m->nwatched];
    }
}

static bool read_one(member *m, int from)
{
    tempi_post *post = m->nheld < HELD ? tempi_post_next(m->box, from) : NULL;
    if (!post)
        return false;
    const int i = m->came[from]++;
    if (post->call != (uint64_t)i || post->channel != key_of(m, from, m->rank, i))
        fail("another message");
    m->held[m->nheld].from = from;
    m->held[m->nheld].memory = NULL;
    m->held[m->nheld++].post = post;
    tempi_post_pass(m->box, from);
    m->most = m->nheld > m->most ? m->nheld : m->most;
    return true;
}

/* Reads it into two blocks that are cut elsewhere than the sender's, so that they may be unlike. */
static bool read_offer(member *m, int k)
{
    tempi_post *post = m->held[k].post;
    char *memory = malloc((size_t)post->bytes);
    const int64_t half = post->bytes / 2 - (post->channel % 3 == 0);
    const tempi_op blocks[2] = {{.mem = memory, .n = half},
                                {.mem = memory + half, .n = post->bytes - half}};
    const bool done = tempi_post_read(m->box, m->held[k].from, post, blocks, 2);
    if (done)
        check(post->channel, memory, post->bytes);
    free(memory);
    return done;
}

/* Lets the sender store it. */
static bool invite(member *m, int k)
{
    tempi_post *post = m->held[k].post;
    char *memory = malloc((size_t)post->bytes);
    const tempi_op whole = {.mem = memory, .n = post->bytes};
    if (tempi_post_invite_to(m->box, m->held[k].from, post, &whole, 1))
        m->held[k].memory = memory;
    else
        free(memory);
    return m->held[k].memory != NULL;
}

/* False: it is to be looked at again. */
static bool get_at_offer(member *m, int k)
{
    if (m->held[k].memory)
        ++m->waited;
    else if (m->held[k].post->channel >> 10 & 1 && invite(m, k))
        return false;
    return read_offer(m, k);
}

/* False: it could not be mapped. */
static bool use(member *m, int k)
{
    tempi_post *post = m->held[k].post;
    if (m->held[k].memory && post->channel % 5 == 0)
        (void)tempi_post_uninvite(post);
    const tempi_post_kind kind = tempi_post_claim(post, false);
    if (kind == TEMPI_POST_LATER || (kind == TEMPI_POST_OFFERED && !get_at_offer(m, k)))
        return true; /* later */
    if (kind == TEMPI_POST_IN_PLACE)
        check(post->channel, m->held[k].memory, post->bytes);
    free(m->held[k].memory);
    const char *data = post->bytes > 0 ? tempi_post_data(m->box, m->held[k].from, post) : "";
    if (!data)
        return false;
    if (kind == TEMPI_POST_PACKED)
        check(post->channel, data, post->bytes);
    for (int i = 0; i < k; ++i)
        m->early += i == 0 && m->held[k].from == m->held[0].from;
    tempi_post_take(m->box, m->held[k].from, post);
    memmove(&m->held[k], &m->held[k + 1], (size_t)(--m->nheld - k) * sizeof m->held[0]);
    return true;
}

/* ---- between members ------------------------------------------------------------------------- */

static bool has_ended(const member *m)
{
    bool ended = m->nheld == 0 && m->nwatched == 0;
    for (int i = 0; i < m->members; ++i)
        ended &= i == m->rank || (m->sent[i] == m->messages && m->came[i] == m->messages);
    return ended;
}

static void turn(member *m, dice *d, bool reads)
{
    const int peer = (m->rank + (int)draw(d, 1, m->members - 1)) % m->members;
    const int64_t burst = draw(d, 1, 12);
    for (int64_t i = 0; i < burst && m->sent[peer] < m->messages; ++i)
        if (!send_one(m, peer, true))
            fail("no memory");
    look_at_offers(m, d);
    for (int64_t i = draw(d, 1, 20); reads && i > 0 && read_one(m, peer); --i)
        ;
    for (int64_t i = reads ? draw(d, 0, 16) : 0; i > 0 && m->nheld > 0; --i)
        if (!use(m, draw(d, 0, 1) ? 0 : (int)draw(d, 0, m->nheld - 1)))
            fail("no mapping");
    if (draw(d, 0, 3) == 0)
        sched_yield();
}

/* Until all have opened it: a message to each, and from each. */
static void meet(member *m)
{
    int left = 0;
    for (int i = 0; i < m->members; ++i)
        if (i != m->rank) {
            ++left;
            if (!send_bytes(m, i, 1))
                fail("no memory");
        }
    for (int i = 0; left > 0; i = (i + 1) % m->members)
        if (i != m->rank && m->came[i] == 0 && read_one(m, i)) {
            (void)use(m, m->nheld - 1);
            --left;
        }
}

static void *take_part(void *argument)
{
    member *m = argument;
    dice d = {m->seed * 77 + (uint64_t)m->rank * 13 + 1};
    int64_t late = draw(&d, 0, 60);
    m->box = tempi_post_open(m->folder, m->members, m->rank, m->name);
    if (!m->box)
        fail("cannot open");
    meet(m);
    while (!has_ended(m)) {
        reading = NULL;
        if (draw(&d, 0, 9) == 0) /* what could not be read is offered again */
            tempi_post_connect(m->box);
        reading = &d;
        turn(m, &d, late <= 0);
        late = late == -100 ? draw(&d, 0, 60) : late - 1;
    }
    reading = NULL;
    tempi_post_close(m->box);
    printf("%d unread %d early %d offered %d withdrawn %d refused %d stored %d waited\n", m->most,
           m->early, m->offered, m->withdrawn, m->refused, m->stored, m->waited);
    fflush(stdout);
    return NULL;
}

static int exchange(bool threads, member *members)
{
    const int n = members->members;
    calls.shares = threads;
    if (!threads)
        return in_processes(n, take_part, members, sizeof *members);
    in_threads(n, take_part, members, sizeof *members);
    return 0;
}

/* ---- two members in one process -------------------------------------------------------------- */

static void open_both(member *members)
{
    for (int i = 0; i < 2; ++i)
        if (!(members[i].box = tempi_post_open(members->folder, 2, i, members->name)))
            fail("cannot open");
}

static void close_both(member *members)
{
    for (int i = 0; i < 2; ++i)
        tempi_post_close(members[i].box);
}

/* All that came to the second one, in any order. */
static void use_all(member *to, dice *d)
{
    while (read_one(to, 0) || to->nheld == HELD)
        if (to->nheld == HELD && !use(to, (int)draw(d, 0, HELD - 1)))
            fail("no mapping");
    while (to->nheld > 0)
        if (!use(to, (int)draw(d, 0, to->nheld - 1)))
            fail("no mapping");
    if (to->came[0] != to[-1].sent[1])
        fail("messages are missing");
}

static long allocated(const member *m)
{
    char path[256];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", m->folder, m->name);
    if (stat(path, &about) != 0)
        fail("no file");
    return (long)about.st_blocks / 2;
}

static int unread(member *members)
{
    dice d = {members->seed};
    open_both(members);
    for (int turns = 0; turns < 4; ++turns) {
        for (int i = 0; i < members->messages; ++i)
            if (!send_one(&members[0], 1, false))
                fail("no memory");
        const long most = allocated(members);
        use_all(&members[1], &d);
        if (!send_bytes(&members[0], 1, 1)) /* it sees that they were read */
            fail("no memory");
        use_all(&members[1], &d);
        const long kept = allocated(members);
        if (turns % 2)
            tempi_post_give_back(members[0].box);
        printf("%ld %ld %ld\n", most, kept, allocated(members));
    }
    close_both(members);
    return 0;
}

static void *send_and_leave(void *argument)
{
    member *m = argument;
    if (!(m->box = tempi_post_open(m->folder, 2, 0, m->name)))
        fail("cannot open");
    while (m->sent[1] < m->messages)
        if (!send_one(m, 1, false))
            fail("no memory");
    tempi_post_close(m->box);
    return NULL;
}

static int left(member *members)
{
    dice d = {members->seed};
    if (!(members[1].box = tempi_post_open(members->folder, 2, 1, members->name)))
        fail("cannot open");
    if (in_processes(1, send_and_leave, members, sizeof *members))
        return 1;
    tempi_segment_unlink(members->folder, members->name);
    members[0].sent[1] = members->messages;
    use_all(&members[1], &d);
    tempi_post_close(members[1].box);
    return 0;
}

/* ---- without memory -------------------------------------------------------------------------- */

static const int64_t some[] = {100, 1 << 20, 300000, 0, 70000, 200, 262144, 66000, 65536, 40000};

/* Messages of which some cannot be sent, and then one says so. Returns the number of failures. */
static int send_some(member *m, int messages)
{
    int failed = 0;
    for (int i = 0; i < messages; ++i)
        if (!send_bytes(m, 1, some[i % (int)(sizeof some / sizeof *some)])) {
            ++failed;
            (void)send_bytes(m, 1, -1);
        }
    return failed;
}

static int use_some(member *to)
{
    int failed = 0;
    while (read_one(to, 0))
        ;
    for (int k = to->nheld - 1; k >= 0; --k)
        failed += !use(to, k);
    return failed;
}

static void create(member *members, char name[TEMPI_SEGMENT_NAME])
{
    if (!tempi_post_create(members->folder, 2, name))
        fail("cannot create");
    for (int i = 0; i < 2; ++i)
        members[i].name = name;
}

static void failing_from(member *members, faulty which, int from, int n, int failed[2])
{
    char name[TEMPI_SEGMENT_NAME];
    dice d = {members->seed};
    create(members, name);
    for (int i = 0; i < 2; ++i) {
        memset(members[i].sent, 0, sizeof members[i].sent);
        memset(members[i].came, 0, sizeof members[i].came);
        members[i].box = NULL;
    }
    memset(calls.seen, 0, sizeof calls.seen);
    calls.which = which;
    calls.from = from;
    calls.n = n;
    for (int i = 0; i < 2; ++i)
        members[i].box = tempi_post_open(members->folder, 2, i, name);
    for (int turns = 0; members[0].box && members[1].box && turns < 6; ++turns) {
        failed[0] += send_some(&members[0], 12);
        failed[1] += use_some(&members[1]);
    }
    calls.which = FAULTY;
    if (members[0].box && members[1].box) {
        use_all(&members[1], &d);
        if (send_some(&members[0], 20) > 0)
            fail("no memory any more");
        use_all(&members[1], &d);
    }
    close_both(members);
    tempi_segment_unlink(members->folder, name);
}

/* What cannot be mapped is given back. */
static void without_mappings(member *members)
{
    char name[TEMPI_SEGMENT_NAME];
    create(members, name);
    open_both(members);
    calls.which = MMAP;
    calls.from = 0;
    calls.n = 1 << 20;
    for (int i = 0; i < 20; ++i)
        if (send_bytes(members, 1, 1 << 20))
            fail("a mapping that there is not");
    calls.which = FAULTY;
    if (allocated(members) > 2 << 10)
        fail("failures keep memory");
    close_both(members);
    tempi_segment_unlink(members->folder, name);
}

static int failing(member *members, int step)
{
    int failed[2] = {0, 0};
    without_mappings(members);
    for (faulty which = 0; which < FAULTY; ++which)
        for (int from = 0; from < 24; from += step)
            for (int n = 1; n <= 64; n *= 8)
                failing_from(members, which, from, n, failed);
    printf("%d %d\n", failed[0], failed[1]);
    return 0;
}

static int interrupted(member *members)
{
    char name[TEMPI_SEGMENT_NAME];
    dice d = {members->seed};
    calls.interrupts = true;
    tempi_segment segment = tempi_segment_create(members->folder, 2, name);
    tempi_segment_unlink(members->folder, name);
    if (!segment.memory)
        fail("no segment");
    tempi_segment_close(&segment);
    create(members, name);
    open_both(members);
    if (send_some(&members[0], 40) > 0)
        fail("a signal takes memory away");
    use_all(&members[1], &d);
    close_both(members);
    tempi_segment_unlink(members->folder, name);
    return 0;
}

static int parts(member *members)
{
    open_both(members);
    in_parts(members[0].box, members[1].box, members->seed, false);
    in_parts(members[0].box, members[1].box, members->seed + 1, true);
    close_both(members);
    return 0;
}

static int limited(const char *folder)
{
    const struct rlimit most = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
    char name[TEMPI_SEGMENT_NAME];
    if (setrlimit(RLIMIT_FSIZE, &most) != 0)
        fail("no limit");
    if (tempi_post_create(folder, 2, name) ||
        (folder && tempi_segment_create(folder, 8, name).memory))
        fail("a file is longer than the limit");
    return 0;
}

/* A message of a power of two. */
static int memory(member *members)
{
    const long before = (open_both(members), allocated(members));
    if (!send_bytes(members, 1, 32 << 20))
        fail("no memory");
    printf("%ld\n", allocated(members) - before);
    close_both(members);
    return 0;
}

/* The path of another process's descriptor may be another file's in this container. */
static int of_another_file(void)
{
    char name[TEMPI_SEGMENT_NAME], other[TEMPI_SEGMENT_NAME];
    if (!tempi_post_create(NULL, 2, name) || !tempi_post_create(NULL, 2, other))
        fail("cannot create");
    tempi_post_box *box = tempi_post_open(NULL, 2, 0, name);
    if (!box)
        fail("cannot open");
    tempi_post_close(box);
    strcpy(strrchr(name, ':'), strrchr(other, ':'));
    if (tempi_post_open(NULL, 2, 0, name))
        fail("opened another file");
    tempi_segment_unlink(NULL, name);
    tempi_segment_unlink(NULL, other);
    return 0;
}

int main(int argc, char **argv)
{
    static member members[MEMBERS];
    char name[TEMPI_SEGMENT_NAME];
    const char *what = argc > 2 ? argv[1] : "";
    const bool among = strcmp(what, "processes") == 0 || strcmp(what, "threads") == 0;
    const int n = among && argc > 3 ? atoi(argv[3]) : 2;
    if (argc < 3 || n < 2 || n > MEMBERS)
        return 2;
    const char *folder = strcmp(argv[2], "-") == 0 ? NULL : argv[2];
    for (int i = 0; i < n; ++i)
        members[i] = (member){.rank = i,
                              .members = n,
                              .messages = argc > 4 ? atoi(argv[argc - 2]) : 0,
                              .folder = folder,
                              .name = name,
                              .seed = strtoull(argv[argc - 1], NULL, 10)};
    if (strcmp(what, "limited") == 0)
        return limited(folder);
    if (strcmp(what, "failing") == 0)
        return failing(members, members->messages);
    if (strcmp(what, "interrupted") == 0)
        return interrupted(members);
    if (strcmp(what, "another") == 0)
        return of_another_file();
    if (!tempi_post_create(folder, n, name))
        fail("no file");
    const int bad = among                         ? exchange(strcmp(what, "threads") == 0, members)
                    : strcmp(what, "left") == 0   ? left(members)
                    : strcmp(what, "unread") == 0 ? unread(members)
                    : strcmp(what, "memory") == 0 ? memory(members)
                    : strcmp(what, "parts") == 0  ? parts(members)
                                                  : 2;
    tempi_segment_unlink(folder, name);
    return bad;
}
