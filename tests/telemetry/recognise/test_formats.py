"""Files in the exact formats of known programs, made by hand: recognised, read, and right."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from fedwatt.telemetry.readers import import_csv, load_mapping
from fedwatt.telemetry.readers.mapping import CsvMapping, parse_mapping
from fedwatt.telemetry.recognise.understand import mapping_text, understand
from fedwatt.telemetry.trip import Vehicle
from tests.telemetry.recognise.drives import degree_minutes, drive, drives

LEAF_SPY = (
    "Date/Time,Lat,Long,Elv,Speed,Gids,SOC,AHr,Pack Volts,Pack Amps,Max CP mV,Min CP mV,Avg CP mV,"
    "CP mV Diff,Judgment Value,Pack T1 F,Pack T1 C,Pack T2 F,Pack T2 C,Pack T3 F,Pack T3 C,"
    "Pack T4 F,Pack T4 C,"
    + ",".join(f"CP{cell}" for cell in range(1, 97))
    + ",12v Bat Amps,VIN,Hx,12v Bat Volts,Odo(km),QC,L1/L2,TP-FL,TP-FR,TP-RR,TP-RL,Ambient,SOH,"
    "RegenWh,BLevel,epoch time,Motor Pwr(w),Aux Pwr(100w),A/C Pwr(250w),A/C Comp(0.1MPa),"
    "Est Pwr A/C(50w),Est Pwr Htr(250w),Plug State,Charge Mode,OBC Out Pwr,Gear,HVolt1,HVolt2,"
    "GPS Status,Power SW,BMS,OBC,Debug,Motor Temp,Inverter 2 Temp,Inverter 4 Temp, Speed1, Speed2,"
    "Wiper Status,Torque Nm,RPM,Debug"
)
TESLAMATE = (
    "id,date,latitude,longitude,speed,power,odometer,ideal_battery_range_km,battery_level,"
    "outside_temp,elevation,fan_status,driver_temp_setting,passenger_temp_setting,is_climate_on,"
    "is_rear_defroster_on,is_front_defroster_on,car_id,drive_id,inside_temp,battery_heater,"
    "battery_heater_on,battery_heater_no_power,est_battery_range_km,rated_battery_range_km,"
    "usable_battery_level,tpms_pressure_fl,tpms_pressure_fr,tpms_pressure_rl,tpms_pressure_rr"
)
OVMS = (
    "mp_cmd,mp_cmdres,mp_row,mp_rowcnt,rec_type,rec_time,odometer_mi_10th,latitude,longitude,"
    "altitude,direction,speed,gps_fix,gps_stale_cnt,gsm_signal,current_power_w,power_used_wh,"
    "power_recd_wh,power_distance,min_power_w,max_power_w,car_status,max_drive_pwr_w,"
    "max_recup_pwr_w,autodrive_level,autorecup_level,min_current_a,max_current_a"
)
TORQUE = (
    "GPS Time, Device Time, Longitude, Latitude,GPS Speed (Meters/second),"
    " Horizontal Dilution of Precision, Altitude, Bearing, G(x), G(y), G(z), G(calibrated),"
    "Speed (OBD)(km/h),HV Battery Voltage(V),HV Battery Current(A),State of Charge(%),"
    "Ambient air temp(°C)"
)
BMW_I3 = (
    "Time [s];Velocity [km/h];Elevation [m];Throttle [%];Motor Torque [Nm];"
    "Longitudinal Acceleration [m/s^2];Regenerative Braking Signal ;Battery Voltage [V];"
    "Battery Current [A];Battery Temperature [°C];max. Battery Temperature [°C];SoC [%];"
    "displayed SoC [%];min. SoC [%];max. SoC [%];Heating Power CAN [kW];Heating Power LIN [W];"
    "Requested Heating Power [W];AirCon Power [kW];Heater Signal;Heater Voltage [V];"
    "Heater Current [A];Ambient Temperature [°C];Coolant Temperature Heatercore [°C];"
    "Requested Coolant Temperature [°C];Coolant Temperature Inlet [°C];"
    "Heat Exchanger Temperature [°C];Cabin Temperature Sensor [°C]"
)
ABRP = (
    "utc,soc,power,speed,lat,lon,is_charging,is_dcfc,is_parked,capacity,soh,heading,elevation,"
    "ext_temp,batt_temp,voltage,current,odometer,est_battery_range"
)
GEOTAB = (
    "device,dateTime,latitude,longitude,speed,DiagnosticStateOfChargeId,"
    "DiagnosticElectricVehicleBatteryPowerId,DiagnosticOutsideTemperatureId"
)


def stamp(form: str) -> pl.Expr:
    milliseconds = (pl.col("t") * 1e3).cast(pl.Int64)
    return pl.from_epoch(milliseconds, time_unit="ms").dt.strftime(form)


def write(path: Path, header: str, rows: pl.DataFrame, separator: str = ",") -> None:
    """Rows below a header: columns by name, those not given empty."""
    names = [name.strip() for name in header.split(separator)]
    blank = pl.Series([""] * rows.height)
    columns = [rows[name] if name in rows.columns else blank for name in names]
    frame = pl.DataFrame({f"c{n}": column.cast(pl.String) for n, column in enumerate(columns)})
    body = frame.write_csv(separator=separator, include_header=False)
    path.write_text(f"{header}\n{body}", encoding="latin-1" if "BMW" in str(path) else "utf-8")


def kmh() -> pl.Expr:
    return pl.col("speed") * 3.6


def watts() -> pl.Expr:
    return pl.col("volt") * pl.col("amp")


def leaf_spy(folder: Path) -> None:
    rows = drives(3, step=5.0).select(
        **{
            "Date/Time": stamp("%m/%d/%Y %H:%M:%S"),
            "Lat": degree_minutes("lat"),
            "Long": degree_minutes("lon"),
        },
        **{"Speed": kmh(), "Elv": "alt", "SOC": (pl.col("soc") * 1e6).round()},
        **{"Pack Volts": "volt", "Pack Amps": "amp", "Pack T3 C": pl.lit("none")},
        **{"VIN": pl.lit("SJNFAAZE1U0123456"), "Ambient": pl.lit(41.0), "epoch time": "t"},
        **{"Est Pwr A/C(50w)": pl.lit(4), "Est Pwr Htr(250w)": pl.lit(2), "Odo(km)": "odo"},
    )
    write(folder / "Log_U0123456_240309.csv", LEAF_SPY, rows)


def teslamate(folder: Path) -> None:
    cars = []
    for car in (1, 2):
        parts = [
            drive(step=5.0, begin=1.71e9 + 7200 * n).with_columns(n=pl.lit(n)) for n in range(3)
        ]
        cars.append(pl.concat(parts).with_columns(car=pl.lit(car)))
    rows = pl.concat(cars).select(
        date=stamp("%Y-%m-%d %H:%M:%S%.3f"), latitude="lat", longitude="lon", elevation="alt",
        speed=kmh(), power=watts() / 1000, battery_level=pl.col("soc") * 100,
        outside_temp=pl.lit(5.0),
        car_id="car", drive_id=pl.col("car") * 100 + pl.col("n"), odometer="odo",
        ideal_battery_range_km=pl.lit(300),
    )  # fmt: skip
    write(folder / "positions.csv", TESLAMATE, rows)


def ovms(folder: Path) -> None:
    rows = drives(3, step=5.0).select(
        mp_cmd=pl.lit("MP-0 c32"), rec_type=pl.lit("RT-GPS-Log"),
        rec_time=stamp("%Y-%m-%d %H:%M:%S"),
        latitude="lat", longitude="lon", altitude="alt", speed=kmh(), gps_fix=pl.lit(1),
        current_power_w=watts().round(), odometer_mi_10th=pl.col("odo") * 6.21,
    )  # fmt: skip
    write(folder / "130311-gpslog.csv", OVMS, rows)


def torque_pro(folder: Path) -> None:
    for trip in range(3):
        rows = drive(begin=1.71e9 + 7200 * trip).select(
            **{"GPS Time": pl.lit("Sat Mar 09 16:00:00 GMT 2024")},
            **{
                "Device Time": stamp("%d-%b-%Y %H:%M:%S%.3f"),
                "Longitude": "lon",
                "Latitude": "lat",
            },
            **{"GPS Speed (Meters/second)": "speed", "Altitude": "alt", "Bearing": pl.lit("-")},
            **{"Speed (OBD)(km/h)": kmh(), "HV Battery Voltage(V)": "volt"},
            **{"HV Battery Current(A)": "amp", "State of Charge(%)": pl.col("soc") * 100},
            **{"Ambient air temp(°C)": pl.lit("-")},
        )
        (folder / "leaf").mkdir(exist_ok=True)
        path = folder / "leaf" / f"trackLog-2024-Mar-09_{trip}.csv"
        write(path, TORQUE, rows)
        # Torque writes its header again when logging is started again.
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:100], TORQUE, *lines[100:]]) + "\n")


def bmw_i3(folder: Path) -> None:
    (folder / "BMW").mkdir()
    for trip in range(3):
        rows = drive(step=0.1, seconds=360, begin=0.0).select(
            **{"Time [s]": pl.col("t").round(1), "Velocity [km/h]": kmh(), "Elevation [m]": "alt"},
            **{"Battery Voltage [V]": "volt", "Battery Current [A]": -pl.col("amp")},
            **{"SoC [%]": pl.col("soc") * 100, "displayed SoC [%]": pl.lit(85.0)},
            **{"Heating Power CAN [kW]": pl.lit(0.5), "AirCon Power [kW]": pl.lit(0.2)},
            **{"Heating Power LIN [W]": pl.lit(490), "Requested Heating Power [W]": pl.lit(800)},
            **{"Heater Voltage [V]": pl.lit(350), "Heater Current [A]": pl.lit(1.4)},
            **{"Ambient Temperature [°C]": pl.lit(5.0), "Battery Temperature [°C]": pl.lit(21.0)},
        )
        write(folder / "BMW" / f"TripA{trip + 1:02}.csv", BMW_I3, rows, ";")


def abrp(folder: Path) -> None:
    rows = drives(3, step=5.0).select(
        utc=pl.col("t").cast(pl.Int64), soc=pl.col("soc") * 100, power=watts() / 1000, speed=kmh(),
        lat="lat", lon="lon", is_charging=pl.lit(0), is_parked=pl.lit(0), elevation="alt",
        ext_temp=pl.lit(5.0), odometer="odo",
    )  # fmt: skip
    write(folder / "ioniq.csv", ABRP, rows)


def geotab(folder: Path) -> None:
    cars = [drives(3, step=20.0).with_columns(car=pl.lit(f"b{car}")) for car in (1, 2)]
    rows = pl.concat(cars).sort("t").select(
        device="car", dateTime=stamp("%Y-%m-%dT%H:%M:%S%.3fZ"), latitude="lat", longitude="lon",
        speed=kmh(), DiagnosticStateOfChargeId=pl.col("soc") * 100,
        DiagnosticElectricVehicleBatteryPowerId=watts(), DiagnosticOutsideTemperatureId=pl.lit(5.0),
    )  # fmt: skip
    write(folder / "logs.csv", GEOTAB, rows)


@pytest.mark.parametrize(
    ("make", "vehicles", "channels"),
    [
        (leaf_spy, ["SJNFAAZE1U0123456"], {"soc", "ac_w", "heater_w", "ambient_c", "elevation_m"}),
        (teslamate, ["1", "2"], {"soc", "ambient_c", "elevation_m", "latitude_deg"}),
        (ovms, ["130311-gpslog"], {"elevation_m", "latitude_deg"}),
        (torque_pro, ["leaf"], {"soc", "latitude_deg", "elevation_m"}),
        (bmw_i3, ["bmw-i3"], {"soc", "ac_w", "heater_w", "ambient_c", "elevation_m"}),
        (abrp, ["ioniq"], {"soc", "ambient_c", "elevation_m", "latitude_deg"}),
        (geotab, ["b1", "b2"], {"soc", "ambient_c", "latitude_deg"}),
    ],
)
def test_a_known_format_is_recognised_and_read(tmp_path, make, vehicles, channels) -> None:
    make(tmp_path)
    layout = understand(tmp_path)
    name = make.__name__.replace("_", "-")
    assert layout.format == name
    for mapping in (
        parse_mapping(mapping_text(layout), "kept.toml"),
        _gap(load_mapping(name), layout),
    ):
        read = list(import_csv(layout.paths, mapping))
        assert [vehicle.name for vehicle in read] == vehicles
        for vehicle in read:
            assert len(vehicle.trips) == 3
            _is_right(vehicle, channels)


def test_leaf_spy_in_miles_is_told_by_its_positions(tmp_path) -> None:
    leaf_spy(tmp_path)
    (log,) = tmp_path.glob("*.csv")
    rows = pl.read_csv(log, infer_schema=False)
    slower = (pl.col("Speed").cast(pl.Float64) / 1.609344).cast(pl.String)
    log.write_text(f"{LEAF_SPY}\n{rows.with_columns(slower).write_csv(include_header=False)}")
    layout = understand(tmp_path)
    assert layout.tables["channels"]["speed_mps"]["unit"] == "mph"
    (vehicle,) = import_csv(layout.paths, parse_mapping(mapping_text(layout), "kept.toml"))
    assert vehicle.trips[0].channels["speed_mps"].mean() == pytest.approx(10.0, rel=0.06)


@pytest.mark.parametrize(("make", "vehicles"), [(teslamate, ["1", "2"]), (geotab, ["b1", "b2"])])
def test_columns_may_be_spelled_otherwise(tmp_path, make, vehicles) -> None:
    make(tmp_path)
    for file in tmp_path.rglob("*.csv"):
        head, _, rows = file.read_text(encoding="utf-8").partition("\n")
        file.write_text(f"{head.upper()}\n{rows}", encoding="utf-8")
    layout = understand(tmp_path)
    assert layout.format == make.__name__
    read = list(import_csv(layout.paths, parse_mapping(mapping_text(layout), "kept.toml")))
    assert [vehicle.name for vehicle in read] == vehicles


def _gap(mapping: CsvMapping, result) -> CsvMapping:
    return replace(mapping, maximum_gap_s=result.spacing.maximum_gap_s)


def _is_right(vehicle: Vehicle, channels: set[str]) -> None:
    """Each trip is the drive of `drives`: 10 m/s and 5 kW on average, 80 % to begin with."""
    for trip in vehicle.trips:
        assert channels <= trip.channels.keys()
        # Rows up to 20 s apart, held and cut off at the end: 6 % of the drive's mean.
        assert trip.channels["speed_mps"].mean() == pytest.approx(10.0, rel=0.06)
        assert trip.channels["energy_wh"].sum() / trip.seconds * 3600 == pytest.approx(
            5000, rel=0.06
        )
        if "soc" in channels:
            assert trip.channels["soc"][0] == pytest.approx(0.8, abs=0.003)
        if "ambient_c" in channels:
            assert trip.channels["ambient_c"][0] == pytest.approx(5.0)
        if "heater_w" in channels:
            assert trip.channels["heater_w"][0] == pytest.approx(500.0)
            assert trip.channels["ac_w"][0] == pytest.approx(200.0)
