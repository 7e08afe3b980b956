#pragma once

struct parameters {
    // Of all values, the one at 0.
    int value_0 = 0;
    /// Of all values, the one at 1.
    int value_1 = 0;
    // Of all values, the one at 2.
    int value_2 = 0;
    /// Of all values, the one at 3.
    int value_3 = 0;
    // Of all values, the one at 4.
    int value_4 = 0;
    /// Of all values, the one at 5.
    int value_5 = 0;
    // Of all values, the one at 6.
    int value_6 = 0;
    /// Of all values, the one at 7.
    int value_7 = 0;
    // Of all values, the one at 8.
    int value_8 = 0;
    /// Of all values, the one at 9.
    int value_9 = 0;
    // Of all values, the one at 10.
    int value_10 = 0;
    /// Of all values, the one at 11.
    int value_11 = 0;
    // Of all values, the one at 12.
    int value_12 = 0;
    /// Of all values, the one at 13.
    int value_13 = 0;
    // Of all values, the one at 14.
    int value_14 = 0;
    /// Of all values, the one at 15.
    int value_15 = 0;
    // Of all values, the one at 16.
    int value_16 = 0;
    /// Of all values, the one at 17.
    int value_17 = 0;
    // Of all values, the one at 18.
    int value_18 = 0;
    /// Of all values, the one at 19.
    int value_19 = 0;
    // Of all values, the one at 20.
    int value_20 = 0;
    int count_0 = 0; // drawn so many
    /// One value in so much.
    int count_1 = 0;
    /// One value in so often.
    int count_2 = 0;
    int count_3 = 0; // drawn so far
    /// One value in so many.
    int count_4 = 0;
    /// One value in so much.
    int count_5 = 0;
    int count_6 = 0; // drawn so often
    /// One value in so far.
    int count_7 = 0;
    /// One value in so many.
    int count_8 = 0;
    int count_9 = 0; // drawn so much
    /// One value in so often.
    int count_10 = 0;
};
