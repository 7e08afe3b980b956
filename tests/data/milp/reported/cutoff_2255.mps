NAME f
ROWS
 N cost
 G r0
 G r1
 E r2
 E r3
 G r4
COLUMNS
 x0 cost -1.0
 x0 r0 3
 x0 r1 1.0
 x0 r2 -1.0
 x1 cost 1
 x1 r3 1
 x1 r4 -7
 M2 'MARKER' 'INTORG'
 x2 r0 1.0
 x2 r2 -2.0
 x2 r3 -2
 x2 r4 -2
 M2 'MARKER' 'INTEND'
 x3 r1 3
 x3 r3 -1
 x3 r4 -1
 M4 'MARKER' 'INTORG'
 x4 r0 -2.5
 x4 r1 -1.0
 x4 r3 -1
 x4 r4 -2
 M4 'MARKER' 'INTEND'
 x5 cost 7
 x5 r0 -813608.0
 x5 r1 0.5
 M6 'MARKER' 'INTORG'
 x6 r2 -1
 M6 'MARKER' 'INTEND'
 x7 r3 -813607.9946205158
 x7 r4 -7
 M8 'MARKER' 'INTORG'
 x8 cost -2.5
 x8 r0 -7.0
 x8 r2 3
 x8 r4 -1.0
 M8 'MARKER' 'INTEND'
 M9 'MARKER' 'INTORG'
 x9 r2 12
 M9 'MARKER' 'INTEND'
RHS
 RHS r0 -314016282.4550044
 RHS r1 1
 RHS r2 989380186736.2988
 RHS r3 1
 RHS r4 -12.193655450152498
BOUNDS
 MI B x0
 UP B x0 8
 LO B x1 0
 PL B x1
 LO B x2 -1
 UP B x2 50
 MI B x3
 UP B x3 8
 LO B x4 0
 PL B x4
 LO B x5 0
 UP B x5 1
 LO B x6 0
 UP B x6 5
 MI B x7
 UP B x7 0
 MI B x8
 UP B x8 -2
 LO B x9 0
 UP B x9 242577838829.0
ENDATA
