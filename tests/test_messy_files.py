"""Files as they come out of spreadsheets and instruments: the table in each, or the line that refuses it."""

import datetime
import io
import tempfile
from contextlib import suppress
from pathlib import Path

import openpyxl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior.data import cells, table_files
from ncprior.data.formats import csv as csv_tables
from ncprior.data.formats import text_columns
from ncprior.data.formats.dialect import DialectOptions
from ncprior.errors import UserError


def D(*parts):
    """A day, or a point in time if there are hours."""
    return datetime.date(*parts) if len(parts) == 3 else datetime.datetime(*parts)


def write(folder, content, name="t.csv"):
    path = Path(folder) / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


ABC = {"a": [1, 4], "b": [2, 5], "c": [3, 6]}
READ = {
    "plain": ("a,b\n1,x\n2.5,y\n", {"a": [1, 2.5], "b": ["x", "y"]}, ""),
    "semicolons": ("a;b\n1;x\n2;y\n", {"a": [1, 2], "b": ["x", "y"]}, "read with ';'"),
    "semicolons and decimal commas": (
        "a;b\n1,5;x\n2;y\n",
        {"a": [1.5, 2], "b": ["x", "y"]},
        "read with ';' and decimal commas",
    ),
    "tabs": ("a\tb\n1\tx\n2\ty\n", {"a": [1, 2], "b": ["x", "y"]}, "read with tabs"),
    "bars": ("a|b\n1|x\n2|y\n", {"a": [1, 2], "b": ["x", "y"]}, "read with '|'"),
    "thousands with points": (
        "a;b\n1.234,5;1\n12.345.678,0;2\n",
        {"a": [1234.5, 12345678], "b": [1, 2]},
        "read with ';' and decimal commas",
    ),
    "thousands with points alone, decimal commas beside": (
        "a;b\n1.234;0,5\n2.345;1,5\n",
        {"a": [1234, 2345], "b": [0.5, 1.5]},
        "read with ';' and decimal commas",
    ),
    "quoted thousands": ('a,b\n"1,234.50",1\n"2,000.25",2\n', {"a": [1234.5, 2000.25], "b": [1, 2]}, ""),
    "quoted thousands, decimal points beside": (
        'a,b\n"1,234",0.5\n"2,345",1.5\n',
        {"a": [1234, 2345], "b": [0.5, 1.5]},
        "",
    ),
    "quoted decimal commas": ('a,b\n"0,5",1\n"1,25",2\n"2,75",3\n', {"a": [0.5, 1.25, 2.75], "b": [1, 2, 3]}, ""),
    "thousands with blanks": (
        "a;b\n1 234,5;1\n12 345,0;2\n",
        {"a": [1234.5, 12345], "b": [1, 2]},
        "read with ';' and decimal commas",
    ),
    "thousands with hard blanks": (
        "a;b\n1\u00a0234,5;1\n12\u00a0345,0;2\n",
        {"a": [1234.5, 12345], "b": [1, 2]},
        "read with ';' and decimal commas",
    ),
    "thousands with apostrophes": (
        "a;b\n1'234.5;1\n12'345.0;2\n",
        {"a": [1234.5, 12345], "b": [1, 2]},
        "read with ';'",
    ),
    "Latin-1": (
        "höhe,ort\n1,Köln\n".encode("latin-1"),
        {"höhe": [1], "ort": ["Köln"]},
        "read with Windows-1252 letters",
    ),
    "Windows-1252": (
        "preis;ort\n1;“Köln”\n2;5 €\n".encode("cp1252"),
        {"preis": [1, 2], "ort": ["“Köln”", "5 €"]},
        "read with ';' and Windows-1252 letters",
    ),
    "letters that only Latin-1 has": (
        "a,b\n1,\x81é\n".encode("latin-1"),
        {"a": [1], "b": ["\x81é"]},
        "read with Latin-1 letters",
    ),
    "UTF-16": ("a\tb\n1\té\n".encode("utf-16"), {"a": [1], "b": ["é"]}, "read with tabs and UTF-16 letters"),
    "UTF-16 without a mark": (
        "a,b\n1,2\n3,4\n".encode("utf-16-le"),
        {"a": [1, 3], "b": [2, 4]},
        "read with UTF-16 letters",
    ),
    "big-endian UTF-16": (
        "a,b\n1,2\n3,4\n".encode("utf-16-be"),
        {"a": [1, 3], "b": [2, 4]},
        "read with UTF-16 letters",
    ),
    "a mark of UTF-8": ("a,b\n1,é\n".encode("utf-8-sig"), {"a": [1], "b": ["é"]}, ""),
    "ends of lines of old Macs": ("a,b\r1,x\r2,y\r", {"a": [1, 2], "b": ["x", "y"]}, ""),
    "ends of lines of Windows": ("a,b\r\n1,x\r\n2,y\r\n", {"a": [1, 2], "b": ["x", "y"]}, ""),
    "a title": ("Measurements of May\na,b\n1,x\n2,y\n", {"a": [1, 2], "b": ["x", "y"]}, "names from line 2"),
    "a title and an empty line": (
        "Measurements\n\na;b;c\n1;2;3\n4;5;6\n",
        {"a": [1, 4], "b": [2, 5], "c": [3, 6]},
        "read with ';'; names from line 3",
    ),
    "a title filled up with separators": (
        "May;;\n;;\na;b;c\n1;2;3\n4;5;6\n",
        {"a": [1, 4], "b": [2, 5], "c": [3, 6]},
        "read with ';'; names from line 3",
    ),
    "comments above the header": (
        "# made by hand\n# twice\na,b\n1,2\n3,4\n",
        {"a": [1, 3], "b": [2, 4]},
        "names from line 3",
    ),
    "empty lines among the rows": ("a,b\n\n1,2\n\n3,4\n\n", {"a": [1, 3], "b": [2, 4]}, ""),
    "a row of units": (
        "t,p,s\nK,bar,\n300.5,1,x\n310,2,y\n",
        {"t": [300.5, 310], "p": [1, 2], "s": ["x", "y"]},
        "units in the line under it",
    ),
    "a row of units in brackets": (
        "t;p\n[K];[bar]\n300;1\n310;2\n",
        {"t": [300, 310], "p": [1, 2]},
        "read with ';'; units in the line under it",
    ),
    "a row of units with dashes": (
        "t,r,p\nK,-,kJ/mol\n300,1,1\n310,2,2\n",
        {"t": [300, 310], "r": [1, 2], "p": [1, 2]},
        "units in the line under it",
    ),
    "a title with a comma": ("Made by Bob, in May\n\na,b,c\n1,2,3\n4,5,6\n", {**ABC}, "names from line 3"),
    "names of which half are empty": (
        ",a,b,\n0,1,2,\n1,3,4,\n",
        {"unnamed 1": [0, 1], "a": [1, 3], "b": [2, 4]},
        "an empty column without a name left out",
    ),
    "remarks above a header behind #": (
        "# run 7\n# a b c\n1 2 3\n4 5 6\n",
        {**ABC},
        "read with blanks; names from line 2",
    ),
    "a remark as wide as the header": (
        "# run 7\na b c\n1 2 3\n4 5 6\n",
        {**ABC},
        "read with blanks; names from line 2",
    ),
    "a header that begins with #": ("#,a\n1,2\n3,4\n", {"#": [1, 3], "a": [2, 4]}, ""),
    "separators at the ends of lines": (
        "a,b,\n1,2,\n3,4,\n",
        {"a": [1, 3], "b": [2, 4]},
        "an empty column without a name left out",
    ),
    "separators at the ends of rows": (
        "a,b,c\n1,2,3,\n3,4,5,\n",
        {"a": [1, 3], "b": [2, 4], "c": [3, 5]},
        "an empty column without a name left out",
    ),
    "a separator at the end of the header": ("a,b,\n1,2\n3,4\n", {"a": [1, 3], "b": [2, 4]}, ""),
    "blanks around names and values": (" a , b \n1 , x \n 2, y\n", {"a": [1, 2], "b": ["x", "y"]}, ""),
    "row names of R": (
        '"a" "b"\n"1" 1.5 "x y"\n"2" 2.5 "z"\n',
        {"unnamed 1": [1, 2], "a": [1.5, 2.5], "b": ["x y", "z"]},
        "read with blanks",
    ),
    "an index of pandas": (",a,b\n0,1,x\n1,2,y\n", {"unnamed 1": [0, 1], "a": [1, 2], "b": ["x", "y"]}, ""),
    "columns by blanks": ("x    y\n1    2.5\n10   3\n", {"x": [1, 10], "y": [2.5, 3]}, "read with blanks"),
    "a header behind #": ("# x y z\n1 2 3\n4 5 6\n", {"x": [1, 4], "y": [2, 5], "z": [3, 6]}, "read with blanks"),
    "the line that tells Excel": (
        "sep=;\na;b\n1,5;2\n",
        {"a": [1.5], "b": [2]},
        "read with ';' and decimal commas; names from line 2",
    ),
    "text with commas between semicolons": (
        "name, first;age\nDoe, Jane;7\nRoe, Jim;9\n",
        {"name, first": ["Doe, Jane", "Roe, Jim"], "age": [7, 9]},
        "read with ';'",
    ),
    "bars in the text of a CSV file": ("id,genres\n1,A|B\n2,C|D\n", {"id": [1, 2], "genres": ["A|B", "C|D"]}, ""),
    "quoted lines": ('a,b\n"x\ny",1\n"z, w",2\n', {"a": ["x\ny", "z, w"], "b": [1, 2]}, ""),
    "one column": ("y\n1\n2\n", {"y": [1, 2]}, ""),
    "units in cells": ("t,v\n379.4 K,1\n380 K,2\n", {"t": [379.4, 380], "v": [1, 2]}, ""),
    "percent": ("p,v\n45.1%,1\n3 %,2\n", {"p": [45.1, 3], "v": [1, 2]}, ""),
    "dollars": ('p,v\n"$1,234.50",1\n$3,2\n-$2.50,3\n', {"p": [1234.5, 3, -2.5], "v": [1, 2, 3]}, ""),
    "euros": ("p;v\n1.234,50 €;1\n3 €;2\n", {"p": [1234.5, 3], "v": [1, 2]}, "read with ';' and decimal commas"),
    "negative in brackets": ('p,v\n"(1,234.50)",1\n3.25,2\n', {"p": [-1234.5, 3.25], "v": [1, 2]}, ""),
    "a minus of typesetters": ("p,v\n−3.5,1\n2,2\n", {"p": [-3.5, 2], "v": [1, 2]}, ""),
    "German dates": ("d,v\n27.08.2021,1\n01.02.2020,2\n", {"d": [D(2021, 8, 27), D(2020, 2, 1)], "v": [1, 2]}, ""),
    "American dates": ("d,v\n05/06/2021,1\n05/27/2021,2\n", {"d": [D(2021, 5, 6), D(2021, 5, 27)], "v": [1, 2]}, ""),
    "British dates": ("d,v\n05/06/2021,1\n27/05/2021,2\n", {"d": [D(2021, 6, 5), D(2021, 5, 27)], "v": [1, 2]}, ""),
    "dates with times": (
        "d,v\n27.08.2021 10:30,1\n01.02.2020 11:00,2\n",
        {"d": [D(2021, 8, 27, 10, 30), D(2020, 2, 1, 11)], "v": [1, 2]},
        "",
    ),
    "months in words": ("d,v\n27 Aug 2021,1\n1 Feb 2020,2\n", {"d": [D(2021, 8, 27), D(2020, 2, 1)], "v": [1, 2]}, ""),
    "years of two digits": ("d,v\n27-Aug-21,1\n1-Feb-20,2\n", {"d": [D(2021, 8, 27), D(2020, 2, 1)], "v": [1, 2]}, ""),
    "decimal commas between blanks": (
        "a   b\n1,5   10\n2,5   7\n",
        {"a": [1.5, 2.5], "b": [10, 7]},
        "read with blanks and decimal commas",
    ),
    "inches": ('a,b\n5" pipe,1\n6",2\n7",3\n', {"a": ['5" pipe', '6"', '7"'], "b": [1, 2, 3]}, ""),
    "hours of two halves of the day": (
        "d,v\n8/27/2021 10:30 AM,1\n5/6/2021 1:05 PM,2\n",
        {"d": [D(2021, 8, 27, 10, 30), D(2021, 5, 6, 13, 5)], "v": [1, 2]},
        "",
    ),
    "days and months of one digit": (
        "d,v\n2021-8-7,1\n2021-10-28,2\n",
        {"d": [D(2021, 8, 7), D(2021, 10, 28)], "v": [1, 2]},
        "",
    ),
    "ISO dates with a mark": ("d,v\n2021-08-07,1\n-,2\n", {"d": [D(2021, 8, 7), None], "v": [1, 2]}, ""),
    "codes like dates": ("c,v\n2021-13-07,1\n2021-10-28,2\n", {"c": ["2021-13-07", "2021-10-28"], "v": [1, 2]}, ""),
    "text with numbers between semicolons": (
        "c;v\n1.234;1\nbeta;2\n",
        {"c": ["1.234", "beta"], "v": [1, 2]},
        "read with ';'",
    ),
    "yes and no": ("f,v\nyes,1\nNo,2\n?,3\n", {"f": [True, False, None], "v": [1, 2, 3]}, ""),
    "marks for missing values": (
        "a,d,v\n1,27.08.2021,1\n-,-,2\n?,?,3\n.,.,4\nn/a,n/a,5\n#N/A,NULL,6\n",
        {"a": [1, *[None] * 5], "d": [D(2021, 8, 27), *[None] * 5], "v": [1, 2, 3, 4, 5, 6]},
        "",
    ),
    "signs that are no marks": ("s,v\n+,1\n-,2\n+,3\n", {"s": ["+", "-", "+"], "v": [1, 2, 3]}, ""),
    "bounds": ("pb,v\n<0.05,1\n0.1,2\n> 5,3\n", {"pb": ["<0.05", "0.1", ">5"], "v": [1, 2, 3]}, ""),
    "codes": ("c,v\nV57,1\n057,2\n12B,3\n", {"c": ["V57", "057", "12B"], "v": [1, 2, 3]}, ""),
    "lists": ('l,v\n1,1\n"1,2",2\n3,3\n"2,4",4\n5,5\n', {"l": ["1", "1,2", "3", "2,4", "5"], "v": [1, 2, 3, 4, 5]}, ""),
}


@pytest.mark.parametrize("name", READ)
def test_what_a_careful_person_reads(tmp_path, name):
    content, expected, line = READ[name]
    path = write(tmp_path, content)
    assert table_files.read(path).to_pydict() == expected
    assert table_files.dialect_in_words(path) == line
    pieces = list(table_files.stream(path, rows=1))
    assert pa.concat_tables(pieces).to_pydict() == expected


REFUSED = {
    "1,234 without other hints": (
        'a,b\n"1,234",1\n"5,678",2\n',
        {},
        "column 'a' has numbers such as '1,234', which may be 1234 or 1.234; say --decimal",
    ),
    "1,234 between semicolons": ("a;b\n1,234;1\n5,678;2\n", {}, "which may be 1234 or 1.234; say --decimal"),
    "1.234 between semicolons": (
        "a;b\n1.234;1\n5.678;2\n",
        {},
        "column 'a' has numbers such as '1.234', which may be 1234 or 1.234; say --decimal , if the point is between",
    ),
    "unquoted thousands": ("a,b\n5,234.5,1\n7,345.5,2\n", {}, "line 2 has 3 values, but the header has 2"),
    "a quotation mark that is never closed": (
        'a,b\n1,x\n\n2,"y\n3,z\n4,w\n',
        {},
        "line 4 has a quotation mark that is never closed; close it, or take it out",
    ),
    "a day that is not there": (
        "d,v\n01/06/2021,1\n31/02/2021,2\n",
        {},
        "'31/02/2021' in column 'd', line 3, is not a date, as the column is",
    ),
    "a title as wide as the header": (
        "Report,May,v2\na,b,c\n1,2,3\n4,5,6\n",
        {},
        "the names of columns may be in line 1 or line 2; say which with --header-row",
    ),
    "a title, a header and units": (
        "Report,May,v2\na,b,c\nK,bar,s\n1,2,3\n4,5,6\n7,8,9\n",
        {},
        "the names of columns may be in line 1 or line 2; say which with --header-row",
    ),
    "no header under a title": (
        "Report,,,\n1,2,3,4\n5,6,7,8\n",
        {},
        "line 2 has numbers where the names of columns should be (1, 2, 3 and 1 more); add a header",
    ),
    "a short line": ("a,b\n" + "1,2\n" * 50 + "1\n", {}, "line 52 has 1 value, but the header has 2"),
    "commas and points in one column": (
        "a;b\n1,5;1\n2.25;2\n",
        {},
        "column 'a' has decimal commas and points, as in '1,5' and '2.25'; write",
    ),
    "dates of either kind": (
        "d,v\n05/06/2021,1\n07/08/2021,2\n",
        {},
        "'05/06/2021', which may be 5 June or 6 May; say --dates dmy",
    ),
    "two separators": (
        "a;b,y\nx;z,w\n",
        {},
        "its columns may be separated by ',' (a;b, y) or by ';' (a, b,y); say which with --sep",
    ),
    "no header": (
        "1,2\n3,4\n",
        {},
        "line 1 has numbers where the names of columns should be (1, 2); add a header, or give --header-row 0",
    ),
    "two headers": (
        "Station;Hamburg City\nDate;Temperature\n1;2\n3;4\n",
        {},
        "the names of columns may be in line 1 or line 2; say which with --header-row",
    ),
    "unquoted decimal commas": (
        "price\n1,5\n2,5\n",
        {},
        "line 2 has 2 values, but the header has 1; mend or drop that line",
    ),
    "a long line": (
        "a,b\n\n1,2\n\n" + "1,2\n" * 50 + "1,2,3\n",
        {},
        "line 55 has 3 values, but the header has 2; mend or drop that line",
    ),
    "a letter among numbers": (
        "a,b\n\n" + "1,2\n" * 50 + "\n1,x\n",
        {"types": {"b": pa.float64()}},
        "'x' in column 'b', line 54, is not a number",
    ),
    "another unit later": (
        "a,b\n" + "1 K,2\n" * 50 + "1 bar,2\n",
        {"blocks": 64},
        "'1 bar' in column 'a', line 52, is not a number, as the column is",
    ),
    "another date later": (
        "a,b\n" + "27.08.2021,2\n" * 50 + "soon,2\n",
        {"blocks": 64},
        "'soon' in column 'a', line 52, is not a date, as the column is",
    ),
    "no text": (b"\x00\x00\x02\x03" * 50, {}, "t.csv: is no text; give a file with rows and columns"),
    "a wrong encoding": (
        b"a,b\n1,\xe9\n",
        {"encoding": "utf-8"},
        "has letters that are not utf-8; give another --encoding",
    ),
    "an unknown encoding": (
        "a,b\n1,2\n",
        {"encoding": "klingon"},
        "--encoding 'klingon': unknown; give one such as utf-8",
    ),
    "a separator of two signs": ("a,b\n1,2\n", {"separator": ";;"}, "--sep ';;': give one sign"),
    "a separator that is the decimal sign": (
        "a,b\n1,2\n",
        {"separator": ",", "decimal": ","},
        "change --sep or --decimal",
    ),
    "a header row that is empty": ("a,b\n\n1,2\n", {"header_row": 2}, "--header-row 2: line 2 of"),
    "a header row below 0": ("a,b\n1,2\n", {"header_row": -1}, "--header-row -1: give the number of a line"),
    "no rows": ("a;b\n", {}, "no rows; give a table with at least one row"),
    "names twice": ("a;a\n1;2\n", {}, "more than one column is called 'a'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path, name, monkeypatch):
    content, known, line = REFUSED[name]
    known_options = dict(known)
    types = known_options.pop("types", None)
    monkeypatch.setattr(csv_tables, "_BLOCK", known_options.pop("blocks", csv_tables._BLOCK))
    path = write(tmp_path, content)
    with pytest.raises(UserError) as caught:
        table_files.read(path, schema=types, options=DialectOptions(**known_options))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("a;b\n1,234;1\n", {"decimal": ","}, {"a": [1.234], "b": [1]}),
        ("a;b\n1,234;1\n", {"decimal": "."}, {"a": [1234], "b": [1]}),
        ("a;b\n1,234;1\n", {"trained_decimal": ","}, {"a": [1.234], "b": [1]}),
        ("a;b\n1.234;1\n", {"decimal": ","}, {"a": [1234], "b": [1]}),
        ("a;b\n1.234;1\n", {"decimal": "."}, {"a": [1.234], "b": [1]}),
        ("a;b\n1.234;1\n", {"trained_decimal": ","}, {"a": [1234], "b": [1]}),
        ("a;b\n1.234;1\n", {"trained_decimal": "."}, {"a": [1.234], "b": [1]}),
        ('a,b\n"0,5",1\n1,2\n2,3\n', {"decimal": ","}, {"a": [0.5, 1, 2], "b": [1, 2, 3]}),
        ("x,y\nin words,of mine\n3,4\n5,6\n", {"header_row": 1}, {"x": [3, 5], "y": [4, 6]}),
        ("a;b\n1,234;0.5\n", {"trained_decimal": ","}, {"a": [1234], "b": [0.5]}),
        ("d,v\n05/06/2021,1\n", {"dates": "dmy"}, {"d": [D(2021, 6, 5)], "v": [1]}),
        ("d,v\n05/06/2021,1\n", {"dates": "mdy"}, {"d": [D(2021, 5, 6)], "v": [1]}),
        ("d,v\n05/06/2021,1\n", {"trained_dates": "mdy"}, {"d": [D(2021, 5, 6)], "v": [1]}),
        ("a;b,y\nx;z,w\n", {"separator": ";"}, {"a": ["x"], "b,y": ["z,w"]}),
        ("a;b,y\nx;z,w\n", {"separator": ","}, {"a;b": ["x;z"], "y": ["w"]}),
        ("a  b\n1  2\n", {"separator": "space"}, {"a": [1], "b": [2]}),
        ("a\tb\n1\t2\n", {"separator": "tab"}, {"a": [1], "b": [2]}),
        ("1,2\n3,4\n", {"header_row": 0}, {"x0": [1, 3], "x1": [2, 4]}),
        ("1,2\n3,4\n", {"header_row": 1}, {"1": [3], "2": [4]}),
        ("x,y\na,b\n3,4\n", {"header_row": 2}, {"a": [3], "b": [4]}),
        ("é,y\n1,2\n".encode("mac-roman"), {"encoding": "mac-roman"}, {"é": [1], "y": [2]}),
    ],
)
def test_options_settle_it(tmp_path, content, options, expected):
    assert table_files.read(write(tmp_path, content), options=DialectOptions(**options)).to_pydict() == expected


def test_columns_that_are_not_wanted_are_not_refused(tmp_path):
    path = write(tmp_path, "a;d;v\n1,234;05/06/2021;1\n")
    assert table_files.read(path, ["v"]).to_pydict() == {"v": [1]}
    assert table_files.schema_of(path).names == ["a", "d", "v"]
    as_text = {"a": pa.string(), "d": pa.string()}
    assert table_files.read(path, schema=as_text).to_pydict() == {"a": ["1,234"], "d": ["05/06/2021"], "v": [1]}


@pytest.mark.parametrize("name", ["t.txt", "t.dat"])
def test_other_names_of_text_files(tmp_path, name):
    path = write(tmp_path, "x y\n1 2,5\n3 4\n", name)
    assert table_files.read(path).to_pydict() == {"x": [1, 3], "y": [2.5, 4]}


def test_days_and_points_in_time_in_one_folder(tmp_path):
    write(tmp_path, "d,a\n27.08.2021,1\n", "1.csv")
    write(tmp_path, "d,a\n28.08.2021 10:30,1\n", "2.csv")
    assert table_files.read(tmp_path)["d"].to_pylist() == [D(2021, 8, 27, 0), D(2021, 8, 28, 10, 30)]


def test_a_folder_of_files_in_different_dialects(tmp_path):
    write(tmp_path, "a,b\n1.5,379.4 K\n", "1.csv")
    write(tmp_path, "a;b\n2,5;380\n", "2.csv")
    write(tmp_path, "a;b\n2,5;<380\n", "3.csv")
    assert table_files.read(tmp_path, ["a"]).to_pydict() == {"a": [1.5, 2.5, 2.5]}
    assert table_files.read(tmp_path).to_pydict() == {"a": [1.5, 2.5, 2.5], "b": ["379.4", "380", "<380"]}


# JSON lines and Excel


def test_json_lines(tmp_path):
    lines = '{"a": 1, "t": "379.4 K", "d": "27.08.2021", "s": "x"}\n{"a": 2.5, "t": "-", "s": "NA"}\n'
    path = write(tmp_path, lines, "t.jsonl")
    expected = {"a": [1, 2.5], "t": [379.4, None], "d": [D(2021, 8, 27), None], "s": ["x", None]}
    assert table_files.read(path).to_pydict() == expected
    assert table_files.read(path, ["s", "a"]).to_pydict() == {"s": ["x", None], "a": [1, 2.5]}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('[{"a": 1}]', "is one list; write one object on each line"),
        ('{"a": 1}\n\n{"a": \n', "line 3 is no JSON object; write one on each line"),
        ('{"a": 1}\n5\n', "line 2 is no JSON object"),
        ('{"a": 1}\n{"a": "x"}\n', "a column has values of different kinds"),
        ('{"d": "05/06/2021"}\n', "which may be 5 June or 6 May"),
    ],
)
def test_json_lines_that_are_refused(tmp_path, content, line):
    path = write(tmp_path, content, "t.jsonl")
    with pytest.raises(UserError, match=line):
        table_files.read(path)


def workbook(folder, sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    content = io.BytesIO()
    book.save(content)
    return write(folder, content.getvalue(), "t.xlsx")


def test_excel(tmp_path):
    rows = [
        ["Measurements"], [], ["a", "t", "d", "f", "s"], [1, "379.4 K", D(2021, 8, 27, 0), True, "x"],
        [2.5, "-", D(2021, 8, 28, 0), False, None],
    ]  # fmt: skip
    path = workbook(tmp_path, {"Empty": [], "May": rows, "Notes": [["by", "hand"]]})
    expected = {
        "a": [1, 2.5], "t": [379.4, None], "d": [D(2021, 8, 27, 0), D(2021, 8, 28, 0)], "f": [True, False],
        "s": ["x", None],
    }  # fmt: skip
    assert table_files.read(path).to_pydict() == expected
    assert table_files.dialect_in_words(path) == "read from the sheet 'May', one of 2, names from line 3"
    assert table_files.read(path, ["s", "a"]).column_names == ["s", "a"]
    with pytest.raises(UserError, match=r"--sheet June: .* has the sheets Empty, May, Notes"):
        table_files.read(path, options=DialectOptions(sheet="June"))


def test_a_row_of_units_in_excel(tmp_path):
    path = workbook(tmp_path, {"May": [["t", "p", "s"], ["K", "[bar]"], [300, "1", "x"], [310, "-", "y"]]})
    table = table_files.read(path)
    assert table.to_pydict() == {"t": [300, 310], "p": [1, None], "s": ["x", "y"]}
    assert [text_columns.written(field).unit for field in table.schema] == ["K", "bar", ""]
    assert table_files.dialect_in_words(path) == "read from the sheet 'May', units in the line under it"


def test_times_and_durations_in_excel(tmp_path):
    rows = [["t", "d"], [datetime.time(10, 30), datetime.timedelta(hours=30)]]
    table = table_files.read(workbook(tmp_path, {"May": rows}))
    assert table.to_pydict() == {"t": [datetime.time(10, 30)], "d": [datetime.timedelta(hours=30)]}


def test_a_sheet_without_a_header(tmp_path):
    path = workbook(tmp_path, {"May": [[1, 2], [3, 4]]})
    with pytest.raises(UserError, match=r"line 1 has numbers where the names of columns should be \(1, 2\)"):
        table_files.read(path)
    assert table_files.read(path, options=DialectOptions(header_row=0)).to_pydict() == {"x0": [1, 3], "x1": [2, 4]}


def test_a_damaged_workbook(tmp_path):
    with pytest.raises(UserError, match=r"t\.xlsx: not an Excel file, or damaged"):
        table_files.read(write(tmp_path, b"PK\x03\x04 no", "t.xlsx"))


# Folders as Hive and Spark write them


def test_folders_that_are_columns(tmp_path):
    for year, town in ((2020, "Ab%20y"), (2021, "Bex")):
        folder = tmp_path / f"year={year}" / f"town={town}"
        folder.mkdir(parents=True)
        write(folder, f"a;b\n{year - 2000},5;2\n")
    table = table_files.read(tmp_path)
    assert table.to_pydict() == {"a": [20.5, 21.5], "b": [2, 2], "year": [2020, 2021], "town": ["Ab y", "Bex"]}
    assert table_files.read(tmp_path, ["town", "b"]).to_pydict() == {"town": ["Ab y", "Bex"], "b": [2, 2]}
    write(tmp_path, "a;b\n1;2\n", "odd.csv")
    with pytest.raises(UserError, match="lies in other folders than"):
        table_files.read(tmp_path)


def test_folders_of_rows_without_a_value(tmp_path):
    for year in ("2020", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"year={year}").mkdir()
        write(tmp_path / f"year={year}", "a\n1\n")
    assert table_files.read(tmp_path).to_pydict() == {"a": [1, 1], "year": [2020, None]}


def test_columns_of_some_files_of_a_folder(tmp_path):
    write(tmp_path, "a,b\n1,2\n", "1.csv")
    assert table_files.only_in_some(tmp_path) == []
    write(tmp_path, "c;b;a\n1,5;2;3\n", "2.csv")
    assert table_files.read(tmp_path).to_pydict() == {"a": [1, 3], "b": [2, 2]}
    assert table_files.only_in_some(tmp_path) == ["c"]


# Any table in any dialect

TEXT = st.text(st.characters(categories=["L"], max_codepoint=0xFF), min_size=1, max_size=6).map(lambda s: f"w{s}")
NUMBERS = st.integers(-(10**9), 10**9).map(lambda n: n / 1000)


@st.composite
def dialect(draw):
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    decimal = "." if separator == "," else draw(st.sampled_from([".", ","]))
    thousands = draw(st.sampled_from(["", "," if decimal == "." and separator != "," else "", " ", "'"]))
    return {
        "separator": separator,
        "decimal": decimal,
        "thousands": thousands,
        "unit": draw(st.sampled_from(["", " K", "%", " kg"])),
        "encoding": draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"])),
        "end": draw(st.sampled_from(["\n", "\r\n", "\r"])),
        "title": draw(st.sampled_from([[], ["A title of 2021"], ["A title", ""]])),
        "padding": draw(st.sampled_from(["", " "])) if separator != "\t" else "",
        "missing": draw(st.sampled_from(["", "-", "n/a", "NULL"])),
        "date": draw(st.sampled_from(["%d.%m.%Y", "%Y-%m-%d", "%d/%m/%Y"])),
    }


def number(value, how):
    whole, _, fraction = f"{abs(value):,.3f}".replace(",", "_").partition(".")
    written = whole.replace("_", how["thousands"]) + how["decimal"] + fraction
    return f"{'-' if value < 0 else ''}{written}{how['unit']}"


@settings(max_examples=150, deadline=None)
@given(
    dialect(),
    st.lists(
        st.tuples(NUMBERS, st.none() | NUMBERS, TEXT, st.dates(datetime.date(1970, 1, 1))), min_size=1, max_size=12
    ),
)
def test_any_table_in_any_dialect_comes_back(how, drawn):
    # One row leaves no doubt about decimals and dates, as one does in a real file.
    rows = [*drawn, (0.25, -1234.5, "w", datetime.date(1999, 12, 31))]
    lines = [
        [number(a, how), how["missing"] if b is None else number(b, how), c, d.strftime(how["date"])]
        for a, b, c, d in rows
    ]
    body = [(how["padding"] + how["separator"]).join(line) for line in [["a", "b", "c", "d"], *lines]]
    text = how["end"].join([*how["title"], *body, ""])
    with tempfile.TemporaryDirectory() as folder:
        table = table_files.read(write(folder, text.encode(how["encoding"])))
    found = table.to_pydict()
    assert found["a"] == [a for a, *_ in rows]
    assert found["b"] == [b for _, b, *_ in rows]
    assert found["c"] == [c for _, _, c, _ in rows]
    assert [d.date() if isinstance(d, datetime.datetime) else d for d in found["d"]] == [d for *_, d in rows]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_table_or_a_line(content):
    with tempfile.TemporaryDirectory() as folder, suppress(UserError):
        table_files.read(write(folder, content))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_any_text_is_read_or_left_as_it_is(values):
    try:
        reading = cells.infer("c", values)
    except UserError:
        return
    if reading is not None:
        assert len(cells.read(pa.array(values), reading)) == len(values)
