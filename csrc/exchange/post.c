#include "exchange/post.h"

/* False: it was another one, *before. */
static bool change(tempi_post *post, uint32_t from, uint32_t to, uint32_t *before)
{
    *before = from;
    return __atomic_compare_exchange_n(&post->state, before, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* ---- by the sender --------------------------------------------------------------------------- */

/* Not offered, or not any more. */
static bool is_packed(const tempi_post *post)
{
    return post->nshapes == 0 && post->described == 0;
}

bool tempi_post_is_over(const tempi_post *post)
{
    return is_packed(post) || __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == TEMPI_POST_TAKEN;
}

bool tempi_post_is_claimed(const tempi_post *post)
{
    return __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == TEMPI_POST_CLAIMED;
}

bool tempi_post_is_refused(const tempi_post *post)
{
    return __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == TEMPI_POST_REFUSED;
}

void tempi_post_withdrawn(tempi_post *post)
{
    post->nshapes = 0;
    __atomic_store_n(&post->described, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&post->state, TEMPI_POST_SENT, __ATOMIC_RELEASE);
}

void tempi_post_failed(tempi_post *post)
{
    post->bytes = -1;
    post->course.timed = false;
    tempi_post_withdrawn(post);
}

bool tempi_post_begin_store(tempi_post *post)
{
    uint32_t before;
    return __atomic_load_n(&post->state, __ATOMIC_RELAXED) == TEMPI_POST_INVITED &&
           change(post, TEMPI_POST_INVITED, TEMPI_POST_STORING, &before);
}

void tempi_post_end_store(tempi_post *post, bool stored)
{
    if (stored)
        post->nshapes = 0;
    __atomic_store_n(&post->state, stored ? TEMPI_POST_STORED : TEMPI_POST_SENT, __ATOMIC_RELEASE);
}

bool tempi_post_take_back(tempi_post *post, uint32_t *before)
{
    do /* again, if the receiver has just called the sender off */
        if (change(post, TEMPI_POST_SENT, TEMPI_POST_WITHDRAWN, before))
            return true;
    while (*before == TEMPI_POST_INVITED &&
           !change(post, TEMPI_POST_INVITED, TEMPI_POST_WITHDRAWN, before));
    return *before == TEMPI_POST_INVITED || *before == TEMPI_POST_REFUSED;
}

bool tempi_post_give_up(tempi_post *post)
{
    uint32_t before;
    if (!tempi_post_take_back(post, &before))
        return false;
    tempi_post_failed(post);
    return true;
}

void tempi_post_unwatch(tempi_post *post)
{
    __atomic_store_n(&post->watched, false, __ATOMIC_RELEASE);
}

/* ---- by the receiver ------------------------------------------------------------------------- */

static bool is_left_to_sender(const tempi_post *post)
{
    const uint32_t state = __atomic_load_n(&post->state, __ATOMIC_RELAXED);
    return state == TEMPI_POST_INVITED || state == TEMPI_POST_STORING;
}

tempi_post_kind tempi_post_claim(tempi_post *post, bool device)
{
    uint32_t before;
    if (!post->offers)
        return TEMPI_POST_PACKED;
    if (is_left_to_sender(post)) /* whose line it stays */
        return TEMPI_POST_LATER;
    if (!change(post, TEMPI_POST_SENT, TEMPI_POST_CLAIMED, &before) &&
        !(before == TEMPI_POST_CLAIMED && is_packed(post)))
        return before == TEMPI_POST_STORED ? TEMPI_POST_IN_PLACE : TEMPI_POST_LATER;
    if (post->described > 0 && !device) {
        __atomic_store_n(&post->state, TEMPI_POST_SENT, __ATOMIC_RELEASE);
        return TEMPI_POST_LATER;
    }
    return is_packed(post) ? TEMPI_POST_PACKED : TEMPI_POST_OFFERED;
}

bool tempi_post_is_described(const tempi_post *post)
{
    return post->offers && __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == TEMPI_POST_SENT &&
           __atomic_load_n(&post->described, __ATOMIC_RELAXED) > 0;
}

void tempi_post_invite(tempi_post *post)
{
    __atomic_store_n(&post->state, TEMPI_POST_INVITED, __ATOMIC_RELEASE);
}

bool tempi_post_is_invited(const tempi_post *post)
{
    return post->offers && __atomic_load_n(&post->state, __ATOMIC_RELAXED) == TEMPI_POST_INVITED;
}

bool tempi_post_uninvite(tempi_post *post)
{
    uint32_t before;
    return change(post, TEMPI_POST_INVITED, TEMPI_POST_SENT, &before);
}

void tempi_post_refuse(tempi_post *post)
{
    __atomic_store_n(&post->state, TEMPI_POST_REFUSED, __ATOMIC_RELEASE);
}
