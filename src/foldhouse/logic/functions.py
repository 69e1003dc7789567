"""Lists of Spark's expressions: those that give the same answer for the same row, and why the others are refused.

Everything that is not listed is refused. A test checks every function that Spark registers.
"""

from __future__ import annotations

_CLOCK = "returns the time of day; take the time from a column of the events"
_RANDOM = "returns a random value; take the value from a column of the events"
_PLACE = "depends on where a row is read; take the value from a column of the events"
_SESSION = "depends on the session; write the value as a literal"
_CODE = "runs Java code that may not be deterministic; register it as a UDF, which states whether it is"
_VERSION = "depends on the version of Spark; write the value as a literal"
_IV = "draws a random initialisation vector; encrypt before the events are appended"
_METRIC = "is computed by a metric view, which foldhouse does not read; write the aggregate itself"
_SKETCH = "depends on the order in which rows are read; use count(DISTINCT x) or percentile(x, p), or a fold"
PARTIAL = "is null or a number by the order in which rows are read, once a part of its sum does not fit"
TRIED = f"{PARTIAL}; write sum(x) or avg(x), whose overflow is an error"
DIGITS = "adds floats in another order each time, so its last digits differ; let the fold add them, or cast to decimal"


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def _reasons(*groups: tuple[str, str]) -> dict[str, str]:
    return {word: reason for reason, words in groups for word in words.split()}


REFUSED = _reasons(
    (_CLOCK, "CurrentDate CurrentTimestamp CurrentTime Now LocalTimestamp"),
    (_RANDOM, "Rand Randn RandStr Uniform Uuid Shuffle"),
    (_PLACE, "MonotonicallyIncreasingID SparkPartitionID InputFileName InputFileBlockStart InputFileBlockLength"),
    (_PLACE, "PythonWorkerLogs"),
    (_SESSION, "CurrentUser CurrentCatalog CurrentDatabase CurrentTimeZone CurrentPath"),
    (_CODE, "CallMethodViaReflection TryReflect"),
    (_VERSION, "SparkVersion SQLKeywords Collations"),
    (_SKETCH, "ApproxTopK ApproxTopKAccumulate ApproxTopKCombine ApproximatePercentile HistogramNumeric"),
    (_SKETCH, "HllSketchAgg HllUnionAgg ThetaIntersectionAgg ThetaSketchAgg ThetaUnionAgg"),
    (_SKETCH, "KllMergeAggBigint KllMergeAggDouble KllMergeAggFloat"),
    (_SKETCH, "KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat"),
    (_SKETCH, "TupleIntersectionAggDouble TupleIntersectionAggInteger TupleSketchAggDouble TupleSketchAggInteger"),
    (_SKETCH, "TupleUnionAggDouble TupleUnionAggInteger"),
    (_IV, "AesEncrypt"),
    (_METRIC, "Measure"),
)
"""Class of an expression -> why it is refused, and what to write instead."""

ORDERED: dict[str, str] = {
    **dict.fromkeys(["First", "Last", "AnyValue"], "min(x), max(x), or max(struct(ordering, x)).x"),
    **dict.fromkeys(["CollectList", "CollectSet", "CollectUnion"], "sort_array(collect_list(x))"),
    "ListAgg": "array_join(sort_array(collect_list(x)), ',')",
    "MaxBy": "max(struct(ordering, x)).x",
    "MinBy": "min(struct(ordering, x)).x",
    "MaxMinByK": "slice(sort_array(collect_list(struct(ordering, x)), false), 1, k).x",
    "Mode": "counts by value in the fold",
    **dict.fromkeys(["NthValue", "RowNumber", "Lag", "Lead", "NTile", "CounterDiff", "CounterDiffWithStartTime"], ""),
}
"""Aggregate or window function that depends on the order of rows -> what to write if nothing orders them.

An empty text means that the window must be ordered.
"""

FLOATS = words("""
    Sum Average VectorAvg VectorSum Corr CovPopulation CovSample Kurtosis Skewness StddevPop StddevSamp VariancePop
    VarianceSamp RegrAvgX RegrAvgY RegrIntercept RegrR2 RegrSXX RegrSXY RegrSYY RegrSlope
""")
"""Aggregates that add floats, so that their last digits depend on the order of rows."""

EXACT_OF_EXACT = words("Sum Average")
"""Members of `FLOATS` that are exact over decimals; the sum also over integers. The others always use floats."""

DETERMINISTIC = words("""
    Abs Acos Acosh Add AddMonths AddTime AesDecrypt AggregateExpression Alias And AnsiCast ApproxTopKEstimate
    ArrayAggregate ArrayAppend ArrayBinarySearch ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists
    ArrayFilter ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend
    ArrayRemove ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip Ascii Asin Asinh
    AssertTrue AtLeastNNonNulls Atan Atan2 Atanh AttributeReference BRound Base32 Base64 Between Bin BinaryPad
    BinaryPredicate
    BitAndAgg BitLength BitOrAgg BitXorAgg BitmapAndAgg BitmapBitPosition BitmapBucketNumber BitmapConstructAgg
    BitmapCount BitmapOrAgg BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor BoolAnd BoolOr
    CaseWhen Cast CastTimestampNTZToLong Cbrt Ceil CheckOverflow CheckOverflowInSum Chr Coalesce Collate Collation
    CommonExpressionDef CommonExpressionRef Concat ConcatWs Contains Conv ConvertTimezone Cos Cosh Cot Count CountIf
    CountMinSketchAgg Crc32 CreateArray CreateMap CreateNamedStruct Csc CsvToStructs CumeDist CurrentRow$ DateAdd
    DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate DateSub DatetimeSub DayName
    DayOfMonth DayOfWeek DayOfYear DayTimeIntervalToSeconds Decode DenseRank Divide DivideDTInterval
    DivideYMInterval DropField ElementAt Elt Empty2Null Encode EndsWith EphemeralSubstring EqualNull EqualNullSafe
    EqualTo EulerNumber Exists Exp Explode Expm1 Extract ExtractANSIIntervalDays ExtractANSIIntervalHours
    ExtractANSIIntervalMinutes ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
    Factorial FindInSet Flatten Floor FormatNumber FormatString FromAvro FromProtobuf FromUTCTimestamp FromUnixTime
    Get GetArrayItem GetArrayStructFields GetJsonObject GetMapValue GetStructField GreaterThan GreaterThanOrEqual
    Greatest Grouping GroupingID HashPartitioning Hex HllSketchEstimate HllUnion Hmac Hour HyperLogLogPlusPlus Hypot
    ILike If In InSet InSubquery InitCap Inline IntegralDivide Invoke IsNaN IsNotNull IsNull IsValidUTF8
    IsValidVariant IsVariantNull JaroWinkler JsonObjectKeys JsonToStructs JsonTuple KllSketchGetNBigint
    KllSketchGetNDouble KllSketchGetNFloat KllSketchGetQuantileBigint KllSketchGetQuantileDouble
    KllSketchGetQuantileFloat KllSketchGetRankBigint KllSketchGetRankDouble KllSketchGetRankFloat
    KllSketchMergeBigint KllSketchMergeDouble KllSketchMergeFloat KllSketchToStringBigint KllSketchToStringDouble
    KllSketchToStringFloat KnownFloatingPointNormalized KnownNotNull KnownNullable LambdaFunction LastDay
    LateralSubquery Least Left Length LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll LikeAny
    ListQuery Literal Log Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval MakeDate MakeDecimal
    MakeInterval MakeTime MakeTimestamp MakeTimestampFromDateTime MakeTimestampNTZ MakeValidUTF8 MakeYMInterval
    MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries MapKeys MapValues MapZipWith Mask Max
    Md5 Median MicrosToTimestamp MillisToTimestamp Min Minute Month MonthName MonthsBetween MultiAlias Multiply
    MultiplyDTInterval MultiplyYMInterval Murmur3Hash NaNvl NamedLambdaVariable NanosToTimestamp NextDay
    NormalizeNaNAndZero Not NotLikeAll NotLikeAny NullIf NullIfResult NullIfZero Nvl Nvl2 OctetLength Or
    OuterReference Overlay ParseJson ParseToDate ParseToTimestamp ParseUrl PercentRank Percentile PercentileCont
    PercentileDisc Pi PivotFirst Pmod PosExplode Pow PreciseTimestampConversion PromotePrecision PythonUDAF PythonUDF
    PythonUDTF Quarter Quote RLike RaiseError Rank RegExpCount RegExpExtract RegExpExtractAll RegExpInStr
    RegExpReplace RegExpSubStr RegrCount Remainder ResolvedCollation Reverse Right Rint Round RoundCeil RoundFloor
    RuntimeReplaceable ST_AsBinary ST_GeogFromWKB ST_GeomFromWKB ST_SetSrid ST_Srid ScalaAggregator ScalaUDAF
    ScalaUDF ScalarSubquery SchemaOfAvro SchemaOfCsv SchemaOfJson SchemaOfVariant SchemaOfVariantAgg SchemaOfXml Sec
    Second SecondWithFraction SecondsToTimestamp Sentences Sequence SessionWindow Sha1 Sha2 ShiftLeft ShiftRight
    ShiftRightUnsigned Signum Sin Sinh Size Slice SortArray SortOrder SoundEx SpecifiedWindowFrame SplitPart Sqrt
    Stack StartsWith StaticInvoke StringDecode StringInstr StringInstrWithOccurrence StringLPad StringLocate
    StringRPad StringRepeat StringReplace StringSpace StringSplit StringToMap StringTranslate StringTrim
    StringTrimBoth StringTrimLeft StringTrimRight StructsToCsv StructsToJson StructsToXml Substring SubstringIndex
    Subtract SubtractDates SubtractTimes SubtractTimestamps Tan Tanh TempResolvedColumn ThetaDifference
    ThetaIntersection ThetaSketchEstimate ThetaUnion TimeAdd TimeAddInterval TimeBucket TimeDiff TimeFromMicros
    TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis TimeToSeconds TimeTrunc TimeWindow TimestampAdd
    TimestampAddInterval TimestampAddYMInterval TimestampDiff ToAvro ToBinary ToCharacter ToDegrees ToNumber
    ToProtobuf ToRadians ToTime ToUTCTimestamp ToUnixTimestamp ToVariantObject TransformKeys TransformValues
    TruncDate TruncTimestamp TryAdd TryAesDecrypt TryCast TryDivide TryElementAt TryEval TryMakeInterval
    TryMakeTimestamp TryMakeTimestampFromDateTime TryMod TryMultiply TryParseUrl TrySubtract TryToBinary TryToNumber
    TryToTimestamp TryUrlDecode TryValidateUTF8 TupleDifferenceDouble TupleDifferenceInteger
    TupleDifferenceThetaDouble TupleDifferenceThetaInteger TupleIntersectionDouble TupleIntersectionInteger
    TupleIntersectionThetaDouble TupleIntersectionThetaInteger TupleSketchEstimateDouble TupleSketchEstimateInteger
    TupleSketchSummaryDouble TupleSketchSummaryInteger TupleSketchThetaDouble TupleSketchThetaInteger
    TupleUnionDouble TupleUnionInteger TupleUnionThetaDouble TupleUnionThetaInteger TypeOf UnBase32 UnBase64
    UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$ Unhex UnixDate UnixMicros UnixMillis UnixNanos
    UnixSeconds UnixTimestamp UnresolvedNamedLambdaVariable UnscaledValue UnspecifiedFrame$ UpCast UpdateFields
    Upper UrlDecode UrlEncode UserDefinedGenerator ValidateUTF8 VariantArrayAppend VariantDelete VariantExplode
    VariantGet VariantInsert VariantSet VariantStripNulls VectorCosineSimilarity VectorInnerProduct VectorL2Distance
    VectorNorm VectorNormalize WeekDay WeekOfYear WidthBucket WindowExpression WindowSpecDefinition WindowTime With
    WithField XPathBoolean XPathDouble XPathFloat XPathInt XPathList XPathLong XPathShort XPathString XmlToStructs
    XxHash64 Year ZeroIfNull ZipWith
""")
"""Classes of expressions that give the same answer for the same arguments; aggregates, for the same set of rows."""

FUNCTIONS = words("""
    abs acos acosh add_months aes_decrypt aggregate and any approx_count_distinct approx_top_k_estimate array
    array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64 between bigint bin binary bit_and
    bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number
    bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim cardinality case cast cbrt
    ceil ceiling char char_length character_length chr coalesce collate collation concat concat_ws contains conv
    convert_timezone cos cosh cot count count_if count_min_sketch crc32 csc cume_dist date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith equal_null
    every exists exp explode explode_outer expm1 extract factorial filter find_in_set flatten float floor forall
    format_number format_string from_avro from_base32 from_csv from_json from_protobuf from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit greatest grouping grouping_id hash hex
    hll_sketch_estimate hll_union hmac hour hypot if ifnull ilike in initcap inline inline_outer instr int
    is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull jaro_winkler_similarity json_array_length
    json_object_keys json_tuple kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
    kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float last_day lcase least left len length levenshtein like ln locate log log10 log1p log2
    lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask max md5 median min minute mod month
    monthname months_between named_struct nanvl negative next_day not nullif nullifzero nvl nvl2 octet_length or
    overlay parse_json parse_url percent_rank percentile percentile_cont percentile_disc pi pmod posexplode
    posexplode_outer position positive pow power printf quarter quote radians raise_error range rank reduce regexp
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_count
    repeat replace reverse right rint rlike round rpad rtrim schema_of_avro schema_of_csv schema_of_json
    schema_of_variant schema_of_variant_agg schema_of_xml sec second sentences sequence session_window sha sha1 sha2
    shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint some sort_array soundex space
    split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack startswith str_to_map
    string struct substr substring substring_index tan tanh theta_difference theta_intersection
    theta_sketch_estimate theta_union time time_bucket time_diff time_from_micros time_from_millis time_from_seconds
    time_to_micros time_to_millis time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis
    timestamp_nanos timestamp_seconds tinyint to_avro to_base32 to_binary to_char to_csv to_date to_json to_number
    to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt
    try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_mod try_multiply try_parse_json try_parse_url try_subtract try_to_binary try_to_date try_to_number
    try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append try_variant_get
    try_variant_insert try_variant_set tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_double
    tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex unix_date
    unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode url_encode validate_utf8
    variant_array_append variant_delete variant_explode variant_explode_outer variant_get variant_insert variant_set
    variant_strip_nulls vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
    vector_normalize weekday weekofyear when width_bucket window window_time xpath xpath_boolean xpath_double
    xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
""")
"""SQL functions that give the same answer for the same arguments, in any order of the rows."""

AGGREGATES = words("""
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    approx_top_k_estimate array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_sketch_estimate
    hll_union hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis last last_value listagg max max_by mean measure
    median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg session_window
    skewness some std stddev stddev_pop stddev_samp string_agg sum theta_difference theta_intersection
    theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg try_avg try_sum
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer var_pop var_samp variance vector_avg vector_sum window window_time
""")
"""SQL functions that aggregate rows, and functions that Spark's examples use together with them."""

REFUSED_NAMES = _reasons(
    (_CLOCK, "curdate current_date current_timestamp current_time localtime localtimestamp now"),
    (_RANDOM, "rand random randn randstr uniform uuid shuffle"),
    (_PLACE, "monotonically_increasing_id spark_partition_id input_file_name"),
    (_PLACE, "input_file_block_start input_file_block_length python_worker_logs"),
    (_SESSION, "user current_user session_user current_catalog current_database current_schema current_timezone"),
    (_SESSION, "current_path"),
    (_CODE, "reflect java_method try_reflect"),
    (_VERSION, "version sql_keywords collations"),
    (_SKETCH, "approx_percentile percentile_approx approx_top_k approx_top_k_accumulate approx_top_k_combine"),
    (_SKETCH, "histogram_numeric hll_sketch_agg hll_union_agg theta_intersection_agg theta_sketch_agg theta_union_agg"),
    (_SKETCH, "kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float"),
    (_SKETCH, "kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float"),
    (_SKETCH, "tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double"),
    (_SKETCH, "tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer"),
    (DIGITS, "covar_pop covar_samp corr kurtosis skewness std stddev stddev_pop stddev_samp var_pop var_samp variance"),
    (DIGITS, "regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy vector_avg vector_sum"),
    (_IV, "aes_encrypt"),
    (TRIED, "try_avg try_sum"),
    (_METRIC, "measure"),
)
"""SQL function -> why it is refused, and what to write instead."""

CLASS_OF = {
    name: kind
    for kind, names in {
        "AnyValue": "any_value",
        "CollectList": "array_agg collect_list",
        "CollectSet": "collect_set",
        "CollectUnion": "collect_union",
        "CounterDiff": "counter_diff",
        "First": "first first_value",
        "Last": "last last_value",
        "Lag": "lag",
        "Lead": "lead",
        "ListAgg": "listagg string_agg",
        "MaxBy": "max_by",
        "MinBy": "min_by",
        "Mode": "mode",
        "NthValue": "nth_value",
        "NTile": "ntile",
        "RowNumber": "row_number",
        "Sum": "sum",
        "Average": "avg mean",
        "RegrAvgX": "regr_avgx",
        "RegrAvgY": "regr_avgy",
    }.items()
    for name in names.split()
}
"""SQL function that depends on the order of rows, or adds numbers -> its class in `ORDERED` or `FLOATS`."""
