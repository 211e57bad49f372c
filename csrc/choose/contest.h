/* A contest of the methods of a message by the times of rounds (message_trials.h): who has the
 * turn, and who wins. It knows neither clock nor processes.
 *
 * The methods take turns, first the one in use; a cycle is a turn of each, and between
 * two the method in use goes on for a while. A method that is far behind leaves. After some cycles
 * the fastest one wins by the median of its turns, each divided by that of the method in use in the
 * same cycle, or sooner if it is clearly better. One that did not win each cycle has to win a
 * second contest, too. The favoured method wins if it is faster at all, and is left for more only.
 */
#ifndef TEMPI_CHOOSE_CONTEST_H
#define TEMPI_CHOOSE_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

enum { TEMPI_CONTEST_METHODS = 3, TEMPI_CONTEST_CYCLES = 5, TEMPI_CONTEST_COUNTED = 15 };

typedef struct tempi_rival {
    uint8_t method;
    double took[TEMPI_CONTEST_CYCLES]; /* a round of the turn of each cycle, nanoseconds */
} tempi_rival;

typedef struct tempi_contest {
    uint8_t nrivals, at; /* whose turn it is */
    uint8_t favoured;    /* the method that wins if there is no clear difference */
    uint8_t cycle;
    tempi_rival rivals[TEMPI_CONTEST_METHODS]; /* first the method in use, then those still in it */
    bool repeated;
    /* This turn: rounds, and of those that count the number, and the times in ascending order. */
    uint8_t rounds, counted;
    double turn[TEMPI_CONTEST_COUNTED];
    int64_t spread;       /* nanoseconds until the next cycle begins */
    int64_t tried, tries; /* time of the other methods' rounds, and their number */
    /* At the end: */
    bool over;
    uint8_t winner; /* its method */
    bool same;      /* it is the method in use, or hardly faster */
    int64_t usual;  /* a round by the method in use, nanoseconds */
} tempi_contest;

static inline int tempi_contest_method(const tempi_contest *contest)
{
    return contest->rivals[contest->at].method;
}

/* Of n methods, of which the first one is in use, and `favoured` wins among near equals. */
void tempi_contest_begin(tempi_contest *contest, int n, const uint8_t methods[], uint8_t favoured);

/* A round of the method whose turn it is took so long (nanoseconds). `stake`: what the messages of
 * a round take, or less, without other messages and the program's own work. True: another method
 * has its turn, or the contest is over. */
bool tempi_contest_round(tempi_contest *contest, int64_t took, int64_t stake);

/* Nanoseconds that trying the other methods has lost. */
int64_t tempi_contest_lost(const tempi_contest *contest);

#endif
